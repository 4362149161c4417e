"""What clients were told, written down call by call, and one checker that compares it with the tables."""
