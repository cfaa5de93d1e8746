"""The pure heart: state machines that read no clock, draw no randomness and send nothing."""
