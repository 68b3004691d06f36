"""The commands of ``leasectl``: one module each, with one function ``command`` that returns an exit code."""
