"""Where an output begins to diverge: the first node that is out of its budget though its inputs are right."""
