"""Logs on a disk: their formats, how they are read, written and followed."""
