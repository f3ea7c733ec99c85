"""How inductor, the compiler behind torch.compile, behaves in a child process."""

from __future__ import annotations

import getpass
import os
import re
import tempfile
from pathlib import Path

__all__ = ["inductor_environment"]


def inductor_environment() -> dict[str, str]:
    """No worker processes to compile in, and the cache where it always is: not in a child's own temporary folder."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if cache is None:
        try:
            name = getpass.getuser()
        except (KeyError, OSError):  # a container whose user has no name
            name = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
        user = re.sub(r'[\\/:*?"<>|]', "_", name)
        cache = str(Path(tempfile.gettempdir()) / f"torchinductor_{user}")
    return {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": cache}
