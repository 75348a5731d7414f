"""Bytes on a disk: atomic writes, untrusted archives, trees of arrays, files of a state."""
