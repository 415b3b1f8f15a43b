"""Reads a sysfs and a procfs root into a Machine; nothing else touches those files.

Captures of other machines are first-class: every root-relative link is resolved inside the root,
and a file that is missing or damaged is replaced by the next best source, with one line in
``Machine.warnings``.
"""

from rte.sysfs.reader import read_machine

__all__ = ["read_machine"]
