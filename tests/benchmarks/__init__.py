"""Measurements beside peers, in one run. They print medians and ratios and assert nothing."""
