"""What a NodePool asks of disruption, once read: its policy, its controls, whether Dovetail manages it."""
