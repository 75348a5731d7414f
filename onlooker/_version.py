"""The version of this package, read by the build and by `onlooker --version`."""

__version__ = "0.2.0.dev0"
