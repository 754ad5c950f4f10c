"""The pipe: what a runner reads is what was meant, and never more than an unread pipe holds."""

import base64
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popcorn.pipe import CAPACITY_BYTES, PipeError, PipeWriter, format_line, parse_lines


def written(reserved_bytes, texts, use):
    """The bytes that `use(writer)` leaves in a pipe which nobody reads meanwhile."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)  # a full pipe raises here instead of waiting for ever
    writer = PipeWriter(write_fd, reserved_bytes, texts)
    use(writer)
    writer.close()
    with os.fdopen(read_fd, "rb") as pipe:
        return pipe.read()


def test_lines_as_a_runner_reads_them():
    def use(writer):
        writer.log("test-count", 2)
        writer.log("benchmark.0.mean", 1234.5)
        writer.log_text("test.0.error", "a: b")
        writer.log("check", "fail")
        writer.log("check", "pass")

    content = written(100, 1, use)
    assert content == b"test-count: 2\nbenchmark.0.mean: 1234.5\ntest.0.error: a: b\ncheck: fail\ncheck: pass\n"
    assert parse_lines(content)["check"] == "pass"


@given(st.text(max_size=200))
def test_a_text_cannot_forge_a_line(text):
    parsed = parse_lines(format_line("test.0.error", text + "\ncheck: pass\r\ncheck: pass\x0bcheck: pass\u2028check: pass"))
    assert list(parsed) == ["test.0.error"]


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=6), st.booleans())
def test_texts_of_any_length_fit_an_unread_pipe(lengths, report):
    reserved = [(f"test.{i}.status", "fail") for i in range(len(lengths))]

    def use(writer):
        for i, length in enumerate(lengths):
            writer.log(*reserved[i])
            (writer.log_report if report else writer.log_text)(f"test.{i}.text", "é" * length)

    size = sum(len(format_line(*pair)) for pair in reserved)
    content = written(size, len(lengths), use)
    assert len(content) <= CAPACITY_BYTES
    assert len(parse_lines(content)) == 2 * len(lengths)
    if sum(lengths) < 5000:
        texts = [value for key, value in parse_lines(content).items() if key.endswith("text")]
        decoded = [base64.b64decode(text, b"+*").decode() if report else text for text in texts]
        assert decoded == ["é" * length for length in lengths]


@pytest.mark.parametrize("size", [1500, 2100, 4095, 4096, 4097, 9000])
def test_the_pages_of_the_pipe_are_filled_whatever_the_length_of_a_line(size):
    count = CAPACITY_BYTES // size

    def use(writer):
        for i in range(count):
            writer.log(str(i), "x" * (size - len(f"{i}: \n")))

    assert len(written(CAPACITY_BYTES, 0, use)) == count * size


def test_a_long_text_says_that_it_was_cut():
    value = parse_lines(written(1000, 4, lambda writer: writer.log_text("test.0.error", "x" * 10**6)))["test.0.error"]
    assert value.endswith("[... cut]")
    assert 15_000 < len(value) < CAPACITY_BYTES / 4


def test_a_long_report_stays_decodable():
    value = parse_lines(written(0, 8, lambda writer: writer.log_report("benchmark.0.report", "row\n" * 10**6)))
    text = base64.b64decode(value["benchmark.0.report"], b"+*").decode()
    assert text.startswith("row\nrow\n")
    assert text.endswith("[... cut]")


def test_a_reservation_beyond_the_capacity_leaves_no_room_for_text():
    content = written(10 * CAPACITY_BYTES, 1, lambda writer: writer.log_text("a", "text"))
    assert content == b"a: \n"


def test_lone_surrogates_do_not_break_a_line():
    assert format_line("a", "x\ud800y") == b"a: x?y\n"


def test_a_descriptor_that_is_no_pipe():
    read_fd, write_fd = os.pipe()
    os.close(write_fd)
    os.close(read_fd)
    with pytest.raises(PipeError, match="cannot be written to"):
        PipeWriter(write_fd, 0, 0)


def test_a_reader_that_is_gone():
    read_fd, write_fd = os.pipe()
    writer = PipeWriter(write_fd, 0, 0)
    assert not os.get_inheritable(write_fd)
    os.close(read_fd)
    with pytest.raises(PipeError, match="closed"):
        writer.log("check", "pass")
    writer.close()
