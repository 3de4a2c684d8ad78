"""Real processes have a network of nothing but loopback."""

from tests.loopback import prefix  # noqa: F401 (a fixture)
