"""An environment for processes in which coverage would get in the way."""

import os


def unmeasured() -> dict[str, str]:
    """This environment, but what is started in it does not measure its coverage.

    An exception that Ctrl-C raises inside coverage's tracer leaves its lock behind, and the process waits for ever. And
    when `sys.path` changes, as when Flower loads an app, coverage takes modules out of `sys.modules` that another
    thread is importing: a run then fails with a KeyError of the app's name.
    """
    return {name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_CONFIG"}
