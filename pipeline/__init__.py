"""The stages (compose, validate, train, evaluate, report) and the trainer that they run."""
