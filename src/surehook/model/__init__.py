"""What everybody speaks of: states, roles, records, rules, resources. Pure."""
