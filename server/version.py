"""The version of this installation, without importing anything heavy."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("etude")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0.0.0"
