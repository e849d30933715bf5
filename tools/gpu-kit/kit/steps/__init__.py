"""The steps of gpu-kit/run, some in each module."""
