from __future__ import annotations

from hypothesis import given
import hypothesis.strategies as st
import numpy as np
import pytest

from dla_ros.cuda.dla import Descriptor
from dla_ros.emulator.loadable import (
    _DESCRIPTOR,
    _HEADER,
    build_loadable,
    is_emulated,
    read_payload,
)
from dla_ros.errors import BackendError
from dla_ros.model import Model
from dla_ros.tensor import LAYOUTS, TensorFormat, TensorSpec
from test.networks import emulated_loadable, save_model

FORMATS = [
    ('float16', 'chw16'), ('int8', 'chw32'), ('float16', 'dla_linear'), ('int8', 'dla_linear'),
    ('int8', 'dla_hwc4'),
]


def test_a_loadable_is_known_by_its_first_bytes():
    assert is_emulated(emulated_loadable())
    assert not is_emulated(b'') and not is_emulated(b'\x00' * 100)


def test_descriptors_are_written_as_cudla_has_them():
    data = emulated_loadable()
    inputs, outputs = np.frombuffer(data, _DESCRIPTOR, 2, _HEADER.itemsize)
    assert inputs['name'] == b"x0'" and outputs['name'] == b"y'"
    assert inputs['shape'].tolist() == [1, 3, 4, 4] and inputs['size'] == 512
    codes = ('data_format', 'data_type', 'data_category', 'pixel_format', 'pixel_mapping')
    assert [int(inputs[code]) for code in codes] == [3, 2, 2, 36, 0]
    assert inputs['strides'][:3].tolist() == [2, 128, 512]
    payload = data[_HEADER.itemsize + 2 * _DESCRIPTOR.itemsize:]
    assert len(payload) == np.frombuffer(data, _HEADER, 1)['payload'][0]
    network = read_payload(payload)
    assert [str(s.shape) for s in network.outputs] == ['(1, 6, 4, 4)']


# Of two real loadables: NVIDIA/cuda-samples#192.
REAL = [
    Descriptor("input'", (1, 4, 512, 960), 1966080, 2, 4, 0, 12, (1, 3840, 0, 0)),
    Descriptor("M0_519'", (1, 64, 32, 60), 131072, 1, 4, 3, 0, (1, 64, 2048, 2048)),
]


@pytest.mark.parametrize(
    ('descriptor', 'layout'), zip(REAL, ('dla_hwc4', 'dla_linear'), strict=True)
)
def test_real_descriptors_fit_the_layouts(descriptor, layout):
    name = descriptor.name.rstrip("'")
    spec = descriptor.spec({name: 0.5})
    assert (spec.name, spec.layout.name, spec.scale) == (name, layout, 0.5)
    expected = Descriptor.expected(spec)
    for field in ('size', 'data_format', 'data_type', 'data_category', 'pixel_format'):
        assert getattr(expected, field) == getattr(descriptor, field), field
    assert expected.strides[:3] == descriptor.strides[:3]


@given(
    st.sampled_from(FORMATS), st.sampled_from((1, 3, 4)), st.integers(1, 70), st.integers(1, 70),
)
def test_descriptors_and_specs_are_one(form, channels, height, width):
    dtype, layout = form
    spec = TensorSpec.of('t', (1, channels, height, width), dtype, layout)
    assert Descriptor.expected(spec).spec({'t': 1.0}) == spec
    assert LAYOUTS[layout].data_format


def test_a_scale_that_is_missing_is_asked_for(tmp_path):
    model = Model.load(save_model(tmp_path))
    with pytest.raises(BackendError, match=r"'x0' as int8 needs a scale.*values up to 255"):
        build_loadable(model, TensorFormat('int8', 'chw32'))


def test_a_layout_that_does_not_exist_for_a_tensor(tmp_path):
    model = Model.load(save_model(tmp_path))
    with pytest.raises(BackendError, match='dla_hwc4.*6 channels'):
        build_loadable(model, outputs=TensorFormat('float16', 'dla_hwc4'))
