"""Models by their id on the Hugging Face hub, through huggingface_hub and its cache."""

import re
from pathlib import Path

ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
WANTED = ("*.json", "merges.txt", "*.safetensors", "*.npz")  # nothing that is code, and no pickle
PICKLE = "pytorch_model.bin"  # but this, opened without running anything of it, where there are no other weights (SEDD)


def is_hub_id(path: str | Path) -> bool:
    """Whether this is owner/name, and not a path: no such folder is here, and none that is called like the owner."""
    return ID.fullmatch(str(path)) is not None and not Path(path).exists() and not Path(path).parent.exists()


def hub_folder(name: str) -> Path:
    """The folder of a model in huggingface_hub's cache, fetched if it is not there yet; HF_HUB_OFFLINE=1 looks there alone."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise ValueError(
            f"there is no model in {name}; to fetch one of this name from the Hugging Face hub install unnoise[hub]"
        ) from error
    try:
        folder = Path(huggingface_hub.snapshot_download(name, allow_patterns=list(WANTED)))
        if any(folder.glob("*.safetensors")) or any(folder.glob("*.npz")):
            return folder
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=[*WANTED, PICKLE]))
    except Exception as error:  # whatever stands in the way: no such name, no network, no room
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(f"there is no model in {name}, and none could be fetched from the hub: {reason[:300]}") from error
