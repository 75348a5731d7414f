"""The version of this package, read by the build and by `onlooker --version`."""

__version__ = "0.1.0"
