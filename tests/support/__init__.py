"""What tests of more than one room build with: worlds, control planes, processes, golden cases."""
