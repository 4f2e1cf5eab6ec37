"""What is done when ranks or nodes of a running attempt are lost."""
