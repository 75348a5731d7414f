"""The world, simulated: learners that climb a reward, and the rewards they climb."""
