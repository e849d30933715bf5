"""The parts of gpu-kit/run."""
