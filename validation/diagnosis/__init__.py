"""What a difference may come from: things that are no parity fault but look like one, and known look-alikes."""
