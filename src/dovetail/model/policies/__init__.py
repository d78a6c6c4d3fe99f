"""What a NodePool says about disruption, parsed: its policy, its controls, whether Dovetail manages it."""
