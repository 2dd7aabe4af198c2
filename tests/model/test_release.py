"""The authors' files: every container loads to the authors' outputs, and nothing else loads."""

import hashlib
import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

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


@pytest.fixture
def in_table(monkeypatch):
    """The table knows the bare file as one of the released."""
    digest = hashlib.sha256(BARE.read_bytes()).hexdigest()
    entry = Released(BARE.stat().st_size, digest, "test", Architecture.model_validate(CLIP))
    monkeypatch.setitem(RELEASED, "fake_clip", entry)


@pytest.mark.parametrize("path", [BUNDLE, LEMON])
def test_bundles_carry_their_architecture_and_are_not_mapped(path, tmp_path):
    """A file overwritten after loading must not change the weights."""
    copy = tmp_path / "copy.pt"
    copy.write_bytes(path.read_bytes())
    encoder = load_release(copy)
    copy.write_bytes(bytes(copy.stat().st_size))
    assert not encoder.training
    same_encoding(encoder, "block")


def test_a_training_snapshot_gives_its_student():
    state = torch.load(SNAPSHOT, weights_only=True)["model_state_dict"]
    own = load_release(SNAPSHOT).state_dict()
    student = {k.removeprefix("student_enc."): v for k, v in state.items() if "student_enc." in k}
    assert len(student) == 4 * 12 + 6
    assert all(torch.equal(own[name], value) for name, value in student.items())


def test_a_bare_file_takes_what_tensors_do_not_show_or_says_which_fields_to_pass():
    few = {name: CLIP[name] for name in UNSEEN}
    for path, architecture in ((BARE, CLIP), (str(BARE), few)):
        same_encoding(load_release(path, architecture=architecture), "clip")
    message = refused(BARE)
    assert str(BARE) in message
    assert all(name in message for name in UNSEEN)
    assert "d_in" not in message


def test_the_table_knows_contents_and_ids_under_the_data_root(tmp_path, monkeypatch, in_table):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    for name in ("checkpoints/fake_clip.pt", "renamed.pt", "without_suffix"):
        (tmp_path / name).write_bytes(BARE.read_bytes())
    for source in ("fake_clip", "fake_clip.pt", "renamed.pt", tmp_path / "without_suffix"):
        same_encoding(load_release(source), "clip")
    same_encoding(init_encoder("release:fake_clip"), "clip")


def test_a_known_name_with_other_content_is_refused(tmp_path, in_table):
    path, known = tmp_path / "fake_clip.pt", BARE.read_bytes()
    for content in (known + b"x", known[:-1] + b"x", BUNDLE.read_bytes()):
        path.write_bytes(content)
        assert "is not the released fake_clip.pt" in refused(path)
    same_encoding(load_release(path, architecture={}), "block")


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
    for source in (tmp_path, "../assembly101_tsm_clip"):
        assert "neither a file" in refused(source)


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


class Attack:
    def __reduce__(self):
        return (Path.touch, (Path("attacked"),))


def test_other_files_are_refused_and_no_code_of_a_file_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no released encoder" in refused(FILES / "head_bare_fc.pt")
    assert "holds a list, expected a dict" in refused(saved(tmp_path, [1, 2]))
    assert "no released encoder" in refused(saved(tmp_path, {"model_state_dict": torch.zeros(2)}))
    pickled = pickle.dumps({"note": Attack()})
    for content in (b"not a checkpoint", BUNDLE.read_bytes()[:50_000], b"", pickled):
        (tmp_path / "other.pt").write_bytes(content)
        assert "not a torch file" in refused(tmp_path / "other.pt")
    content = {**torch.load(BUNDLE, weights_only=True), "note": Attack()}
    assert "not a torch file that loads safely" in refused(saved(tmp_path, content))
    assert not Path("attacked").exists()


def test_init_from_reads_folders_and_remembers_who_chose(tmp_path):
    load_release(BUNDLE).save_pretrained(tmp_path)
    same_encoding(init_encoder(str(tmp_path)), "block")
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
