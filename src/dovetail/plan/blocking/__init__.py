"""What holds back how much money, and how to lift it."""
