"""Download and upload of models on the Hugging Face hub by huggingface_hub. HF_ENDPOINT selects another hub."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unnoise.checkpoint.format import CARD

ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
WANTED = ("*.json", "*.txt", "*.gz", "*.safetensors", "*.npz", CARD)  # neither code nor pickles
PICKLES = ("pytorch_model.bin", "last.ckpt")  # fetched only without other weights, and opened without running code
README = "README.md"


def is_hub_id(path: str | Path) -> bool:
    """Return whether a path is an id owner/name, and neither it nor a folder named like the owner exists here."""
    return ID.fullmatch(str(path)) is not None and not Path(path).exists() and not Path(path).parent.exists()


def hub_folder(name: str) -> Path:
    """Return the folder of a model in huggingface_hub's cache, and fetch it first unless HF_HUB_OFFLINE=1 is set."""
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
    except Exception as error:  # unknown name, no network, full disk
        raise ValueError(f"there is no model in {name}, and none could be fetched from the hub: {_reason(error)}") from error


@dataclass(frozen=True)
class Upload:
    """A repository on the hub that a model can be uploaded to."""

    api: Any
    repo_id: str

    @classmethod
    def begin(cls, repo_id: str) -> "Upload":
        """Check the id, the package, the token and the network before an upload; raise ValueError if one of them fails."""
        try:
            from huggingface_hub import HfApi, constants, get_token
            from huggingface_hub.utils import HfHubHTTPError, validate_repo_id
        except ImportError as error:
            raise ValueError("to upload a model to the Hugging Face hub install unnoise[hub]") from error
        if ID.fullmatch(repo_id) is None:
            raise ValueError(f"the id of a model on the hub must be owner/name, found {repo_id!r}")
        try:
            validate_repo_id(repo_id)
        except ValueError as error:
            raise ValueError(f"{repo_id!r} is not a valid id of a model on the hub: {_reason(error)}") from error
        if constants.HF_HUB_OFFLINE:
            raise ValueError("nothing is uploaded while HF_HUB_OFFLINE is set")
        if get_token() is None:
            raise ValueError("there is no token for the hub: run `hf auth login`, or set HF_TOKEN")
        api = HfApi()
        try:
            api.whoami()
        except HfHubHTTPError as error:
            raise ValueError(f"the hub at {api.endpoint} does not accept the token: {_reason(error)}") from error
        except Exception as error:
            raise ValueError(f"the hub at {api.endpoint} cannot be reached: {_reason(error)}") from error
        return cls(api, repo_id)

    def send(self, folder: Path, private: bool, message: str) -> str:
        """Upload all files of a folder in one commit and return the repository's address.

        The commit deletes other files of the repository that would be loaded with the model. The repository is created if it
        does not exist. Raise ValueError if it is public and must be private, or if the hub refuses.
        """
        from fnmatch import fnmatch

        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        try:
            self.api.create_repo(self.repo_id, private=private or None, exist_ok=True)
            if private and not self.api.model_info(self.repo_id).private:
                raise ValueError("the repository exists and is public: make it private on the hub, or upload without --private")
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
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
