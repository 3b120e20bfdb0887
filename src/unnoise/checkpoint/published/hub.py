"""Models by their id on the Hugging Face hub, fetched and uploaded through huggingface_hub; HF_ENDPOINT names another hub."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unnoise.checkpoint.card import CARD

ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
WANTED = ("*.json", "*.txt", "*.gz", "*.safetensors", "*.npz", CARD)  # nothing that is code, and no pickle
PICKLES = ("pytorch_model.bin", "last.ckpt")  # but these, opened without running anything of them, without other weights
README = "README.md"


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
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=[*WANTED, *PICKLES]))
    except Exception as error:  # whatever stands in the way: no such name, no network, no room
        raise ValueError(f"there is no model in {name}, and none could be fetched from the hub: {_reason(error)}") from error


@dataclass(frozen=True)
class Upload:
    """A repository on the hub to which a model may be uploaded, as far as can be known before it is."""

    api: Any
    repo_id: str

    @classmethod
    def begin(cls, repo_id: str) -> "Upload":
        """ValueError where nothing could be uploaded: the package, a token or the network is missing, or the id is none."""
        try:
            from huggingface_hub import HfApi, constants, get_token
            from huggingface_hub.utils import HfHubHTTPError, validate_repo_id
        except ImportError as error:
            raise ValueError("to upload a model to the Hugging Face hub install unnoise[hub]") from error
        if ID.fullmatch(repo_id) is None:
            raise ValueError(f"a model on the hub is called owner/name, found {repo_id!r}")
        try:
            validate_repo_id(repo_id)
        except ValueError as error:
            raise ValueError(f"a model on the hub cannot be called {repo_id!r}: {_reason(error)}") from error
        if constants.HF_HUB_OFFLINE:
            raise ValueError("nothing is uploaded while HF_HUB_OFFLINE is set")
        if get_token() is None:
            raise ValueError("there is no token for the hub: run `hf auth login`, or set HF_TOKEN")
        api = HfApi()
        try:
            api.whoami()
        except HfHubHTTPError as error:
            raise ValueError(f"the hub at {api.endpoint} does not take the token: {_reason(error)}") from error
        except Exception as error:
            raise ValueError(f"the hub at {api.endpoint} cannot be reached: {_reason(error)}") from error
        return cls(api, repo_id)

    def send(self, folder: Path, private: bool, message: str) -> str:
        """Upload all files of a folder in one commit, which takes away other files that would be read with them; its address.

        The repository is made if there is none. ValueError if it is public and must be private, or if the hub refuses.
        """
        from fnmatch import fnmatch

        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        try:
            self.api.create_repo(self.repo_id, private=private or None, exist_ok=True)
            if private and not self.api.model_info(self.repo_id).private:
                raise ValueError("it is there already, and public: make it private there, or upload without --private")
            sent = {path.name: path for path in sorted(folder.iterdir())}
            read = (*WANTED, *PICKLES)
            there = self.api.list_repo_files(self.repo_id)
            stale = [name for name in there if name not in sent and any(fnmatch(name, pattern) for pattern in read)]
            operations = [
                *(CommitOperationAdd(name, path) for name, path in sent.items()),
                *(CommitOperationDelete(name) for name in stale),
            ]
            self.api.create_commit(self.repo_id, operations, commit_message=message)
        except Exception as error:
            raise ValueError(f"the model was not uploaded to {self.repo_id}: {_reason(error)}") from error
        return f"{self.api.endpoint}/{self.repo_id}"


def _reason(error: Exception) -> str:
    """The beginning of what an error says, in one line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
