"""What tests of several services share: real servers, polling with a deadline, service processes."""
