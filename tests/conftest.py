"""What every test may rely on: property tests draw the same examples in every run and have no deadline; tests/support can be
imported.

A busy machine is no counterexample, and neither is an example that only today's draw has found: look for new ones with
`pytest --hypothesis-profile fresh`.
"""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.append(str(Path(__file__).parent / "support"))

SLOW_MACHINES = [HealthCheck.too_slow]  # drawing takes long where others compute
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None, suppress_health_check=SLOW_MACHINES)
settings.register_profile("fresh", deadline=None, suppress_health_check=SLOW_MACHINES)
settings.load_profile("repeatable")
