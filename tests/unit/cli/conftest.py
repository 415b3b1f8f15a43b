"""Files for the commands."""

import pytest
import yaml


@pytest.fixture
def write(tmp_path):
    def write(name, objects):
        path = tmp_path / name
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": objects}))
        return str(path)

    return write
