"""The authors' files: every container loads to the authors' outputs, and nothing else loads."""

import hashlib
import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from pjepa.model import release as release_table
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.release import (
    RELEASED,
    Architecture,
    Released,
    init_encoder,
    init_selection,
    load_release,
)
from pjepa.ui.console import InputError

FILES = Path(__file__).parents[1] / "golden" / "pjepa" / "fake_release"
BARE, SNAPSHOT = FILES / "bare_clip.pt", FILES / "training_snapshot_v1.pt"
BUNDLE, LEMON = FILES / "bundle_architecture_block.pt", FILES / "bundle_lemon_config_block.pt"
EXPECTED = load_file(FILES / "expected_encodings.safetensors")
with safe_open(FILES / "expected_encodings.safetensors", "pt") as opened:
    CLIP = json.loads(opened.metadata()["clip_architecture"])
UNSEEN = ("enc_heads", "pred_heads", "student_encoder_attention", "student_encoder_block_size",
          "rope_mode")  # fmt: skip


def encoding(encoder, case):
    lengths = EXPECTED[f"{case}.segment_lengths"][0].tolist() if case == "clip" else None
    return encoder.encode(EXPECTED[f"{case}.x"][0], lengths)


def same_encoding(encoder, case):
    expected = EXPECTED[f"{case}.y"][0]
    torch.testing.assert_close(encoding(encoder, case), expected, atol=1e-5, rtol=0)


def refused(*arguments, **options):
    with pytest.raises(InputError) as caught:
        load_release(*arguments, **options)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def saved(folder, content, name="some.pt"):
    torch.save(content, folder / name)
    return folder / name


def released(path, architecture=CLIP):
    """The table's entry that a file would have if it were one of the five."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    size = path.stat().st_size
    return Released(size, digest, "test", Architecture.model_validate(architecture))


@pytest.mark.parametrize("path", [BUNDLE, LEMON])
def test_bundles_carry_their_architecture(path):
    encoder = load_release(path)
    assert not encoder.training
    same_encoding(encoder, "block")


def test_a_training_snapshot_gives_its_student():
    state = torch.load(SNAPSHOT, weights_only=True)["model_state_dict"]
    encoder = load_release(SNAPSHOT)
    own = encoder.state_dict()
    student = {k.removeprefix("student_enc."): v for k, v in state.items() if "student_enc." in k}
    assert len(student) == 4 * 12 + 6
    assert all(torch.equal(own[name], value) for name, value in student.items())


def test_a_bare_file_takes_what_tensors_do_not_show():
    same_encoding(load_release(BARE, architecture=CLIP), "clip")
    few = {name: CLIP[name] for name in UNSEEN}
    same_encoding(load_release(str(BARE), architecture=few), "clip")
    other = load_release(BARE, architecture={**few, "enc_heads": 4})
    assert (encoding(other, "clip") - EXPECTED["clip.y"][0]).abs().max() > 1e-2


def test_the_file_is_not_mapped_any_more(tmp_path):
    """A file overwritten after loading must not change the weights."""
    path = tmp_path / "copy.pt"
    path.write_bytes(BUNDLE.read_bytes())
    encoder = load_release(path)
    path.write_bytes(bytes(path.stat().st_size))
    same_encoding(encoder, "block")


def test_a_bare_unknown_file_says_which_fields_to_pass():
    message = refused(BARE)
    assert str(BARE) in message
    assert all(name in message for name in UNSEEN)
    assert "d_in" not in message


def test_the_table_knows_names_and_contents(tmp_path, monkeypatch):
    monkeypatch.setitem(release_table.RELEASED, "fake_clip", released(BARE))
    for name in ("fake_clip.pt", "renamed.pt", "without_suffix"):
        path = tmp_path / name
        path.write_bytes(BARE.read_bytes())
        same_encoding(load_release(path), "clip")


@pytest.mark.parametrize("change", [lambda b: b + b"x", lambda b: b[:-1] + b"x"])
def test_a_known_name_with_other_content_is_refused(tmp_path, monkeypatch, change):
    monkeypatch.setitem(release_table.RELEASED, "fake_clip", released(BARE))
    path = tmp_path / "fake_clip.pt"
    path.write_bytes(change(BARE.read_bytes()))
    message = refused(path)
    assert "is not the released fake_clip.pt" in message
    path.write_bytes(BUNDLE.read_bytes())
    assert "is not the released fake_clip.pt" in refused(path)
    same_encoding(load_release(path, architecture={}), "block")


def test_an_id_is_found_under_the_data_root(tmp_path, monkeypatch):
    monkeypatch.setitem(release_table.RELEASED, "fake_clip", released(BARE))
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "fake_clip.pt").write_bytes(BARE.read_bytes())
    monkeypatch.chdir(tmp_path)
    same_encoding(load_release("fake_clip"), "clip")
    same_encoding(load_release("fake_clip.pt"), "clip")
    same_encoding(init_encoder("release:fake_clip"), "clip")


@pytest.mark.parametrize("root", [None, "some-root"])
def test_offline_the_missing_file_and_its_place_are_named(tmp_path, monkeypatch, root):
    def no_network(repository, name):
        assert (repository, name) == ("FelTris/pjepa", "assembly101_tsm_clip.pt")
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", no_network)
    monkeypatch.chdir(tmp_path)
    if root:
        monkeypatch.setenv("PJEPA_DATA_ROOT", root)
    else:
        monkeypatch.delenv("PJEPA_DATA_ROOT", raising=False)
    message = refused("assembly101_tsm_clip")
    place = f"{root or '$PJEPA_DATA_ROOT'}/checkpoints/assembly101_tsm_clip.pt"
    assert place in message
    assert "https://huggingface.co/FelTris/pjepa" in message


def test_an_unknown_name_lists_the_known(tmp_path):
    message = refused("assembly101")
    assert all(name in message for name in RELEASED)
    assert "neither a file" in refused(tmp_path)
    assert "neither a file" in refused("../assembly101_tsm_clip")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"predictor.norm.bias": None}, "predictor.norm.bias is missing"),
        ({"student_enc.extra": torch.zeros(1)}, "student_enc.extra is unknown"),
        ({"student_enc.norm.bias": torch.zeros(17)}, "student_enc.norm.bias is [17] instead of"),
        ({"student_enc.norm.bias": "text"}, "student_enc.norm.bias is not a tensor"),
        ({"student_enc.proj.1.weight": torch.zeros(16)}, "its tensors show 0"),
    ],
)
def test_wrong_tensors_are_named(tmp_path, changes, message):
    content = torch.load(BUNDLE, weights_only=True)
    state = content["model_state_dict"] | changes
    content["model_state_dict"] = {k: v for k, v in state.items() if v is not None}
    assert message in refused(saved(tmp_path, content))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("d_in", 12, "d_in is 12, its tensors show 16"),
        ("enc_depth", 10**9, "enc_depth is 1000000000, its tensors show 4"),
        ("enc_heads", 3, "enc_heads 3 does not divide d_model 16"),
        ("enc_heads", "many", "enc_heads = 'many': "),
        ("student_encoder_attention", "sparse", "student_encoder_attention = 'sparse': "),
        ("rope_mode", "3d", "rope_mode = '3d': "),
        ("heads", 2, "heads: unknown parameter; did you mean enc_heads?"),
    ],
)
def test_an_impossible_architecture_is_one_line(tmp_path, field, value, message):
    content = torch.load(BUNDLE, weights_only=True)
    content["architecture"][field] = value
    assert message in refused(saved(tmp_path, content))
    assert message in refused(BUNDLE, architecture={field: value})


def test_other_files_are_refused(tmp_path):
    assert "no released encoder" in refused(FILES / "head_bare_fc.pt")
    assert "holds a list, expected a dict" in refused(saved(tmp_path, [1, 2]))
    assert "no released encoder" in refused(saved(tmp_path, {"model_state_dict": torch.zeros(2)}))
    for content in (b"not a checkpoint", BUNDLE.read_bytes()[:50_000], b""):
        (tmp_path / "other.pt").write_bytes(content)
        assert "not a torch file" in refused(tmp_path / "other.pt")


class Attack:
    def __reduce__(self):
        return (Path.touch, (Path("attacked"),))


def test_no_code_of_a_file_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = torch.load(BUNDLE, weights_only=True)
    path = saved(tmp_path, {**content, "note": Attack()})
    assert "not a torch file that loads safely" in refused(path)
    (tmp_path / "plain.pt").write_bytes(pickle.dumps({"note": Attack()}))
    refused(tmp_path / "plain.pt")
    assert not Path("attacked").exists()


def test_init_from_reads_folders_and_remembers_who_chose(tmp_path):
    load_release(BUNDLE).save_pretrained(tmp_path)
    encoder = init_encoder(str(tmp_path))
    assert isinstance(encoder, ProcedureEncoder)
    same_encoding(encoder, "block")
    assert init_selection(str(tmp_path)) == "none"
    (tmp_path / "selection.json").write_text('{"selection_labels": "holdout"}')
    assert init_selection(str(tmp_path)) == "holdout"
    assert init_selection("release:assembly101_tsm_clip") == "val"
    assert init_selection("release:some/egoprocel_pooled_clip.pt") == "test"
    assert init_selection("release:own.pt") == "val"


def test_the_table_is_plausible():
    """Bytes are 4 x parameters and a little: a wrong width in the table would show."""
    for known in RELEASED.values():
        shape = known.architecture
        d, block = shape.d_model, 12 * shape.d_model**2 + 13 * shape.d_model
        count = 2 * shape.d_in + d * (shape.d_in + 1) + 2 * d  # projection, final norm
        count += shape.enc_depth * block + shape.pred_depth * block + 2 * d + d
        assert 20_000 < known.bytes - 4 * count < 40_000
        assert len(known.sha256) == 64
    assert len({known.sha256 for known in RELEASED.values()}) == len(RELEASED) == 5
