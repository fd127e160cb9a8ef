"""Own data from the command line: a file, a folder of images, or a user's function."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from privplan.errors import Fault, InputError
from privplan.processes import importable
from simulate.data.own import Data
from simulate.data.own_files import DataOptions, Reader, reader_of
from simulate.data.user_code import error_line, imported

FORMS = (
    "FILE.npz, FILE.csv, FILE.parquet, a folder of images, or package.module:function"
)


def load_own(source: str, options: DataOptions) -> Data:
    """The data that a command line names.

    Args:
        source: a path, or ``package.module:name``.
        options: how a file or folder is read; a function takes none.

    Raises:
        InputError: for another form, options that do not fit it, or data that cannot be
            read.
    """
    path = Path(source)
    read = reader_of(path)
    if read is not None:
        data = read(path, options, _test_data(path, options, read))
        if options.test_of_others:
            data.test_of_others = True
            data.require_sound()
        return data
    if ":" not in source or path.exists():
        raise InputError.one("data", f"must be {FORMS}", source)
    data = _returned(source)
    for field in fields(DataOptions):
        value = getattr(options, field.name)
        is_task = field.name == "task" and value == data.task
        if value != field.default and not is_task:
            rule = "must be left out with data that a function returns"
            raise InputError.one(field.name, rule, str(value))
    return data


def _test_data(path: Path, options: DataOptions, read: Reader) -> Data | None:
    """The test records that the options name, in the form of the data."""
    if options.group is not None and options.groups is not None:
        rule = "must be left out with --groups, which names the group of each client"
        raise InputError.one("group", rule, options.group)
    test = options.test
    if test is None:
        return None
    if path.is_dir():
        form = "a folder"
        is_alike = test.is_dir()
    else:
        form = f"a {path.suffix} file"
        is_alike = test.suffix == path.suffix
    if not is_alike:
        rule = f"must be {form}, like the data"
        # Whoever means a share of the records finds how to name it.
        if re.fullmatch(r"0?\.\d+", str(test)):
            rule += f"; --test-share {test} splits off that share of the data"
        raise InputError.one("test", rule, str(test))
    of_test = replace(options, test=None, test_share=None, groups=None)
    try:
        return read(test, of_test, None)
    except InputError as error:
        faults = [
            Fault(f"test.{fault.field}", fault.rule, fault.found)
            for fault in error.faults
        ]
        raise InputError(faults) from None


def _returned(source: str) -> Data:
    """The data that the user's function returns, or a module holds."""
    value = imported("data", source)
    try:
        with importable(str(Path.cwd())):
            is_function = callable(value) and not isinstance(value, Data)
            data = value() if is_function else value
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        rule = "must be made without an error"
        raise InputError.one("data", rule, error_line(error)) from None
    if not isinstance(data, Data):
        rule = f"must be a function that returns simulate.Data ({source})"
        raise InputError.one("data", rule, type(data).__name__)
    return data


def load_file(source: Path | str, options: Mapping[str, Any]) -> Data:
    """The data in a file or folder, which is never imported as code.

    Args:
        source: its path.
        options: of ``DataOptions``, by name; paths may be texts.

    Raises:
        InputError: for an unknown option, or data that cannot be read.
    """
    names = [field.name for field in fields(DataOptions)]
    values = dict(options)
    for name, value in options.items():
        if name not in names:
            rule = f"options must be among {', '.join(names)}"
            raise InputError.one("data", rule, name)
        if name in ("groups", "statistics", "test") and value is not None:
            if not isinstance(value, str | Path):
                rule = "must be the path of a file"
                raise InputError.one(name, rule, type(value).__name__)
            values[name] = Path(value)
    if not Path(source).exists():
        raise InputError.one("data", "must be a file or folder", str(source))
    return load_own(str(source), DataOptions(**values))
