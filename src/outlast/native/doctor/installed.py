"""What of outlast and Python runs here."""

import platform
from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """Return the version of outlast that is installed."""
    try:
        return version("outlast")
    except PackageNotFoundError:
        return "(from its sources)"


def python_version() -> str:
    return platform.python_version()
