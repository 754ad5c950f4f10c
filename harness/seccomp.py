"""A seccomp filter: system calls that no kernel needs and that reach other processes, the network or the kernel itself."""

import ctypes
import errno
import platform
import struct
from dataclasses import dataclass

from harness.libc import PR_SET_SECCOMP, check

FILTER_MODE = 2
RET_ALLOW, RET_ERRNO = 0x7FFF0000, 0x00050000
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF opcodes on 32-bit words
NUMBER_OFFSET, ARCH_OFFSET, FIRST_ARGUMENT_OFFSET = 0, 4, 16  # struct seccomp_data, little-endian
AF_UNIX = 1
X32_BIT = 0x40000000  # x86-64 calls by their 32-bit-pointer numbers
NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
# Calls with the same number everywhere: io_uring carries out others unseen.
COMMON = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "process_madvise": 440,
    "mount_setattr": 442, "clone3": 435,
}  # fmt: skip
NUMBERS = {
    "x86_64": COMMON | {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "bpf": 321,
        "perf_event_open": 298, "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313,
        "delete_module": 176, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "swapon": 167,
        "swapoff": 168, "reboot": 169, "setns": 308, "unshare": 272, "add_key": 248, "request_key": 249,
        "keyctl": 250, "userfaultfd": 323, "name_to_handle_at": 303, "open_by_handle_at": 304, "acct": 163,
        "quotactl": 179, "syslog": 103, "settimeofday": 164, "clock_settime": 227, "clock_adjtime": 305,
        "adjtimex": 159, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "seccomp": 317,
        "socket": 41, "connect": 42, "clone": 56, "prctl": 157,
    },
    "aarch64": COMMON | {
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "bpf": 280,
        "perf_event_open": 241, "kexec_load": 104, "kexec_file_load": 294, "init_module": 105, "finit_module": 273,
        "delete_module": 106, "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "swapon": 224,
        "swapoff": 225, "reboot": 142, "setns": 268, "unshare": 97, "add_key": 217, "request_key": 218,
        "keyctl": 219, "userfaultfd": 282, "name_to_handle_at": 264, "open_by_handle_at": 265, "acct": 89,
        "quotactl": 60, "syslog": 116, "settimeofday": 170, "clock_settime": 112, "clock_adjtime": 266,
        "adjtimex": 171, "sethostname": 161, "setdomainname": 162, "seccomp": 277, "socket": 198, "connect": 203,
        "clone": 220, "prctl": 167,
    },
}  # fmt: skip
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CONDITIONAL = ("socket", "connect", "clone", "clone3", "prctl")  # refused for some arguments or in some circumstances
PEEKING = ("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp")


@dataclass(frozen=True)
class Rules:
    """What is left to a process: the network, other processes' memory, connecting to UNIX sockets that lie in files."""

    network: bool = False
    peeking: bool = False
    unix_connect: bool = True


def supported() -> bool:
    """Whether the calls of this machine are known."""
    return platform.machine() in NUMBERS


def install(rules: Rules) -> None:
    """Filter the calls of this thread and of whatever it starts. Needs no_new_privs. Raises OSError."""
    program = build(rules, platform.machine())
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    check(libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(FILTER_MODE), ctypes.c_char_p(header), 0, 0), "prctl(PR_SET_SECCOMP)")


def build(rules: Rules, machine: str) -> bytes:
    """The BPF program: a refused call fails with EPERM, what should look missing with ENOSYS."""
    numbers = NUMBERS[machine]
    program = [_op(LOAD, ARCH_OFFSET), _op(JUMP_EQUAL, AUDIT_ARCH[machine], 1, 0), _refuse(errno.ENOSYS)]
    program += [_op(LOAD, NUMBER_OFFSET), _op(JUMP_AT_LEAST, X32_BIT, 0, 1), _refuse(errno.ENOSYS)]
    refused = [name for name in numbers if name not in CONDITIONAL and not (rules.peeking and name in PEEKING)]
    if not rules.unix_connect and not rules.network:
        refused.append("connect")
    for name in refused:
        program += [_op(JUMP_EQUAL, numbers[name], 0, 1), _refuse(errno.EPERM)]
    # libc then falls back to clone, whose flags can be seen
    program += [_op(JUMP_EQUAL, numbers["clone3"], 0, 1), _refuse(errno.ENOSYS)]
    program += _if_argument(numbers["clone"], _op(JUMP_ANY_BIT, NEW_NAMESPACES, 0, 1), errno.EPERM)
    program += _if_argument(numbers["prctl"], _op(JUMP_EQUAL, PR_SET_SECCOMP, 0, 1), errno.EPERM)
    if not rules.network:
        program += _if_argument(numbers["socket"], _op(JUMP_EQUAL, AF_UNIX, 1, 0), errno.EAFNOSUPPORT)
    return b"".join([*program, _op(RETURN, RET_ALLOW)])


def _if_argument(number: int, test: bytes, error: int) -> list[bytes]:
    """Refuse call `number` if `test` of its first argument's low word does not jump over the refusal."""
    return [_op(JUMP_EQUAL, number, 0, 4), _op(LOAD, FIRST_ARGUMENT_OFFSET), test, _refuse(error), _op(RETURN, RET_ALLOW)]


def _refuse(error: int) -> bytes:
    return _op(RETURN, RET_ERRNO | error)


def _op(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
