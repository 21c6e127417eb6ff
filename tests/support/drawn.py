"""Settings of tests that draw their examples with Hypothesis."""

from hypothesis import HealthCheck, settings

#: No example and no drawing fails for the time that it takes: on a busy machine any may.
drawn = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
