"""Imports of a staged folder that see their own `task`, `utils` and `reference`, and disturb nobody else's.

Every problem folder has modules of the same names. Putting a folder on sys.path would let the first one loaded answer
for all, so each folder gets a ModuleSpace: its files are registered under names of its own, and the `import`
statements inside them, also those inside functions that run later, look there first.
"""

import builtins
import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

_serial = itertools.count(1)


class ModuleSpace:
    """The Python files of one folder as an island of imports. Modules stay registered for the life of the process."""

    def __init__(self, folder: Path):
        self._prefix = f"_problem{next(_serial)}_"
        self._paths = {path.stem: path for path in folder.glob("*.py")}
        self._builtins = {**vars(builtins), "__import__": self._import}

    def load(self, name: str) -> ModuleType:
        """The folder's module `name`, run on first use. Raises whatever the module's own code raises."""
        registered = self._prefix + name
        if registered in sys.modules:
            return sys.modules[registered]
        spec = importlib.util.spec_from_file_location(registered, self._paths[name])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        vars(module)["__builtins__"] = self._builtins  # where the import statement finds `__import__`
        sys.modules[registered] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[registered]
            raise
        return module

    def _import(self, name, globals=None, locals=None, fromlist=(), level=0):
        if level == 0 and name in self._paths:
            return self.load(name)
        return builtins.__import__(name, globals, locals, fromlist, level)
