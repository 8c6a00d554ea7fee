"""What an operator launches by hand: a replay of dead letters, a moved position, a repair, a shadow table. One job a module."""
