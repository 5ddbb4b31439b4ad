"""The cudla backend on the emulator: the same answers, every refusal, every ending."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import onnx
from onnx import helper, TensorProto
import pytest
import yaml

from dla_ros import DeadlineError, Detector, Model
from dla_ros.backends.base import BackendOptions
from dla_ros.backends.cudla import CudlaBackend
from dla_ros.decoders.base import Thresholds
from dla_ros.decoders.heads import Head
from dla_ros.emulator.loadable import build_loadable
from dla_ros.errors import BackendError, DlaError, Remedy
from dla_ros.image import ImageView
from dla_ros.tensor import TensorFormat
from test.conftest import assert_same, picture, PICTURES, ROOT, rows
from test.emulation import assert_flat, clean, emulator, opened, stand_in_gpu
from test.networks import copied_model, quantize_edges, save_model

OPTIONS = BackendOptions(emulate=True, task_timeout=0.5)
VIEW = ImageView.from_array(np.full((4, 4, 3), 7, np.uint8), 'rgb8')


@pytest.mark.parametrize('model', ['yolox_nano', 'yolo_fastest'])
@pytest.mark.parametrize(
    ('inputs', 'outputs'),
    [
        ('fp16:chw16', 'fp16:chw16'), ('fp16:dla_linear', 'fp16:dla_linear'),
        ('fp16:dla_hwc4', 'fp16:chw16'), ('fp16:chw16', 'fp16:dla_linear'),
    ],
)
def test_float_layouts_give_the_answers_of_onnxruntime(model, inputs, outputs, tmp_path):
    compare(copied_model(model, tmp_path), inputs, outputs, tmp_path)


@pytest.mark.parametrize('inputs', ['int8:chw32', 'int8:dla_linear', 'int8:dla_hwc4'])
@pytest.mark.parametrize('outputs', ['int8:chw32', 'int8:dla_linear', 'fp16:chw16'])
def test_int8_layouts_give_the_answers_of_the_same_network_with_int8_edges(
    inputs, outputs, tmp_path
):
    path = copied_model('yolox_nano', tmp_path)
    source = Model.load(path)
    scales = {'images': 255 / 127, 'head8': 0.09, 'head16': 0.09, 'head32': 0.09}
    quantized = [
        name for name in scales if (inputs if name == 'images' else outputs).startswith('int8')
    ]
    quantize_edges(source.onnx, tmp_path / 'edges.onnx', {n: scales[n] for n in quantized})
    plain = copied_model('yolox_nano', tmp_path, scales=scales)
    reference = tmp_path / 'reference'
    reference.mkdir()
    edges = copied_model('yolox_nano', reference, onnx=str(tmp_path / 'edges.onnx'))
    content = yaml.safe_load(edges.read_text())
    del content['onnx_sha256']
    edges.write_text(yaml.safe_dump(content))
    compare(plain, inputs, outputs, tmp_path, reference=edges)


def compare(path, inputs, outputs, tmp_path, reference=None):
    """Compare the emulated DLA with onnxruntime on all pictures."""
    model = Model.load(path)
    loadable = build_loadable(model, TensorFormat.parse(inputs), TensorFormat.parse(outputs))
    (tmp_path / 'loadable.bin').write_bytes(loadable)
    path.write_text(path.read_text() + '\nloadable: loadable.bin\n')
    with (
        clean(),
        Detector.open(path, backend='cudla', options=OPTIONS) as emulated,
        Detector.open(reference or path) as cpu,
    ):
        assert [s.layout.name for s in emulated.backend.inputs] == [inputs.partition(':')[2]]
        assert {s.layout.name for s in emulated.backend.outputs} == {outputs.partition(':')[2]}
        for name in PICTURES:
            expected = rows(cpu(picture(name)), model.labels)
            found = rows(emulated(picture(name)), model.labels)
            assert_same(found, expected, overlap=0.98, tolerance=0.01)


@pytest.fixture
def small(tmp_path):
    return save_model(tmp_path, kind=TensorProto.FLOAT16)


def loadable_with(path, change, outputs='fp16:chw16'):
    """Write an emulated loadable of the model with its descriptors changed; return model.yaml."""
    from dla_ros.emulator.loadable import _DESCRIPTOR, _HEADER

    data = bytearray(build_loadable(Model.load(path), outputs=TensorFormat.parse(outputs)))
    descriptors = np.frombuffer(data, _DESCRIPTOR, 2, _HEADER.itemsize)
    change(descriptors)
    (path.parent / 'changed.bin').write_bytes(data)
    path.write_text(path.read_text() + 'loadable: changed.bin\n')
    return path


def test_what_the_descriptors_say_is_compared_with_the_layout(small):
    def widen(descriptors):
        descriptors['strides'][0, 1] = 192

    with clean(), pytest.raises(BackendError) as caught:
        opened(loadable_with(small, widen))
    assert "'x0'" in str(caught.value)
    assert '(2, 192, 512)' in str(caught.value) and '(2, 128, 512)' in str(caught.value)


def test_a_format_that_no_layout_has_is_refused(small):
    def change(descriptors):
        descriptors['data_format'][1] = 7

    with clean(), pytest.raises(BackendError, match="'y'.*format 7 with float16.*chw16"):
        opened(loadable_with(small, change))


def test_an_int8_tensor_needs_a_scale(small):
    def change(descriptors):
        descriptors['data_type'][0] = 4

    with clean(), pytest.raises(BackendError, match=r'scales: \{x0: '):
        opened(loadable_with(small, change))


def test_a_loadable_that_is_none_is_refused_with_the_usual_cause(small):
    emulated = build_loadable(Model.load(small))
    # Its magic is right, but it was cut off.
    (small.parent / 'cut.bin').write_bytes(emulated[:-1])
    small.write_text(small.read_text() + 'loadable: cut.bin\n')
    with clean(), pytest.raises(DlaError, match='TensorRT plan') as caught:
        opened(small)
    assert (caught.value.call, caught.value.status) == ('cudlaModuleLoadFromMemory', 7)


def test_the_stand_in_refuses_what_a_real_dla_would_run(small):
    with clean(), pytest.raises(DlaError) as caught:
        CudlaBackend(Model.load(small), b'a real loadable, say', OPTIONS)
    assert caught.value.status == 7


def in_new_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    return done.stdout + done.stderr


OPEN = (
    'import sys\nfrom dla_ros import Detector, BackendOptions\n'
    'try:\n    Detector.open({path!r}, backend="cudla", options=BackendOptions(**{options!r}))\n'
    'except Exception as error:\n    print(type(error).__name__, error)\n'
)


def test_without_emulation_an_emulated_loadable_is_refused(small):
    (small.parent / 'emulated.bin').write_bytes(build_loadable(Model.load(small)))
    small.write_text(small.read_text() + 'loadable: emulated.bin\n')
    said = in_new_process(OPEN.format(path=str(small), options={}))
    assert 'BackendError' in said and 'emulated loadable, which no DLA can run' in said
    assert 'emulate:=true' in said and '--buildDLAStandalone' in said


def test_without_a_loadable_the_error_says_how_to_get_one(small):
    said = in_new_process(OPEN.format(path=str(small), options={}))
    assert 'names no DLA loadable' in said and 'trtexec' in said and 'emulate:=true' in said


@stand_in_gpu
def test_without_a_driver_the_error_says_so(small):
    (small.parent / 'real.bin').write_bytes(b'a real loadable, say')
    small.write_text(small.read_text() + 'loadable: real.bin\n')
    said = in_new_process(OPEN.format(path=str(small), options={}))
    assert 'DlaError cuInit failed' in said and 'libcuda.so.1 cannot be loaded' in said


def test_real_and_emulated_do_not_mix_in_a_process(small):
    with pytest.raises(BackendError, match='emulator is loaded in this process'):
        opened(small, emulate=False)


@pytest.mark.parametrize(
    ('call', 'status', 'words'),
    [
        ('cudlaCreateDevice', 13, 'discrete'),
        ('cudlaCreateDevice', 2, '16 handles'),
        ('cudlaCreateDevice', 1, 'dla_core'),
        ('cudlaCreateDevice', 10, 'JetPack'),
        ('cudlaCreateDevice', 15, 'libnvcudla'),
        ('cudlaModuleLoadFromMemory', 7, 'TensorRT plan'),
    ],
)
def test_known_causes_have_a_hint(small, call, status, words):
    with clean():
        emulator.fail(call, status)
        with pytest.raises(DlaError, match=words) as caught:
            opened(small)
        assert (caught.value.call, caught.value.status) == (call, status)


def test_a_core_that_does_not_exist(small):
    with clean(), pytest.raises(DlaError, match='cores 0 and 1'):
        opened(small, dla_core=2)


def test_a_status_that_no_enumeration_has(small):
    with clean(), opened(small) as detector:
        emulator.fail('cudlaSubmitTask', 4242)
        with pytest.raises(DlaError, match=r'status 4242 \(unknown\)'):
            detector(VIEW)


def save_nodes(path, nodes, constants=()):
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT16, (1, c, 4, 4))
        for name, c in (('x0', 3), ('y', 6))
    ]
    graph = helper.make_graph(nodes, 'net', infos[:1], infos[1:], list(constants))
    opset = helper.make_opsetid('', 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=9), path)


def test_warm_up_finds_outputs_that_are_not_finite(small):
    nodes = [
        helper.make_node('Div', ['x0', 'x0'], ['nan']),
        helper.make_node('Concat', ['nan', 'nan'], ['y'], axis=1),
    ]
    save_nodes(small.parent / 'network.onnx', nodes)
    with clean(), pytest.raises(BackendError, match="'y': 96 of 96 elements are not finite"):
        opened(small)


def test_warm_up_finds_elements_that_are_not_written(small):
    # The descriptor promises 7 channels, of which the network writes 6.
    def change(descriptors):
        descriptors['shape'][1, 1] = 7
        descriptors['size'][1] = 7 * 4 * 64

    with clean(), pytest.raises(BackendError) as caught:
        model = Model.load(loadable_with(small, change, 'fp16:dla_linear'))
        backend = CudlaBackend.open(model, OPTIONS)
        backend.read_from([Head.packed('y', 2, (1.0, 1.0))], ())
    assert "'y': the DLA left 16 of 112 elements unwritten" in str(caught.value)


def test_for_a_frame_nothing_is_acquired_and_nothing_waits_but_for_its_last_event(small):
    with clean(), opened(small) as detector:
        emulator.reset()
        for _ in range(20):
            detector(VIEW)
        words = ('Alloc', 'Create', 'Load', 'Register', 'Retain', 'cudlaModule', 'Synchronize')
        assert not [call for call in emulator.calls() if any(word in call for word in words)]
        assert 'cuMemcpyDtoH' not in emulator.calls()
        assert emulator.calls()['cudlaSubmitTask'] == 20
        assert emulator.calls()['cudlaGetLastError'] == 20


def test_stages_are_measured(small):
    with clean(), opened(small) as detector:
        detector.submit(0, VIEW, Thresholds())
        stages = detector.collect(0, 5.0).stages
    assert list(stages) == ['upload', 'preprocess', 'inference', 'select', 'decode']
    assert all(0 <= value < 5000 for value in stages.values())


@pytest.mark.parametrize('staging', ['mapped', 'copied'])
def test_images_reach_the_gpu_either_way_and_a_larger_one_makes_room(small, staging):
    random = np.random.default_rng(1)
    large = random.integers(0, 256, (2000, 1300, 3), np.uint8)
    with clean(), opened(small, staging=staging) as detector, Detector.open(small) as cpu:
        assert detector.backend.about['staging'] == staging
        for image in (large[:5, :7], large, large[:50, :70], large):
            np.testing.assert_allclose(detector(image).xyxy, cpu(image).xyxy, rtol=1e-3)
        emulator.reset()
        detector(large)
        assert not any('Alloc' in call for call in emulator.calls())
        copies = emulator.calls().get('cuMemcpyHtoDAsync', 0)
        assert emulator.real_gpu or copies == (staging == 'copied')


def test_tensors_come_along_if_asked_for(tmp_path):
    path = copied_model('yolox_nano', tmp_path)
    view = ImageView.from_array(picture('coral_cat.bmp'))
    with (
        clean(), opened(path, tensors=True) as detector,
        Detector.open(path, tensors=True) as cpu, opened(path) as without,
    ):
        found, expected, none = (
            (d.submit(0, view, Thresholds()), d.collect(0, 10.0).tensors)[1]
            for d in (detector, cpu, without)
        )
    assert none == {} and found.keys() == expected.keys() == {'head8', 'head16', 'head32'}
    for name, array in found.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, expected[name])


def test_a_task_that_takes_too_long_ends_with_the_task_timeout(small):
    with clean(), opened(small, task_timeout=0.2) as detector:
        emulator.fail_task(0, until_timeout=True)
        start = time.monotonic()
        with pytest.raises(DlaError, match='ENGINE_TIMEOUT.*task_timeout') as caught:
            detector(VIEW)
        assert 0.1 < time.monotonic() - start < 1.0
        assert caught.value.remedy is Remedy.REOPEN


def test_a_task_that_never_ends_misses_its_deadline_and_is_not_released(small):
    with clean():
        detector = opened(small)
        emulator.fail_task(0, hang=True)
        detector.submit(0, VIEW, Thresholds())
        with pytest.raises(DeadlineError) as caught:
            detector.collect(0, 0.1)
        assert caught.value.remedy is Remedy.REOPEN
        held = emulator.alive()
        start = time.monotonic()
        with pytest.raises(BackendError, match='still at work') as caught:
            detector.close()
        assert caught.value.remedy is Remedy.RESTART
        assert time.monotonic() - start < 1.0 and emulator.alive() == held
        # Should it come back after all, nothing is lost.
        emulator.release()
        time.sleep(0.1)
        detector.close()


def test_a_frame_that_was_late_can_be_collected(small):
    with clean(), opened(small) as detector:
        emulator.fail_task(0, hang=True)
        detector.submit(0, VIEW, Thresholds())
        with pytest.raises(DeadlineError):
            detector.collect(0, 0.0)
        emulator.release()
        assert len(detector.collect(0, 5.0).prediction.score) > 0


def test_a_submission_that_hangs_does_not_hang_close(small):
    with clean():
        detector = opened(small)
        emulator.fail('cudlaSubmitTask', 0, hang=True)
        thread = threading.Thread(target=detector, args=(VIEW,))
        thread.start()
        time.sleep(0.1)
        with pytest.raises(BackendError, match='has not come back') as caught:
            detector.close()
        assert caught.value.remedy is Remedy.RESTART
        emulator.release()
        thread.join(5.0)
        detector.close()


@stand_in_gpu
def test_an_error_that_ends_the_process_says_so_and_everything_is_freed(small):
    with clean():
        detector = opened(small)
        emulator.fail('cuEventQuery', 911, sticky=True)
        with pytest.raises(DlaError, match='911.*new process') as caught:
            detector(VIEW)
        assert caught.value.remedy is Remedy.RESTART
        with pytest.raises(DlaError, match='911'):
            detector.close()


def test_close_while_another_thread_waits_for_a_frame(small):
    with clean():
        detector = opened(small)
        emulator.fail_task(0, hang=True)
        detector.submit(0, VIEW, Thresholds())
        errors = []

        def wait():
            try:
                detector.collect(0, 10.0)
            except BackendError as error:
                errors.append(str(error))

        thread = threading.Thread(target=wait)
        thread.start()
        threading.Timer(0.2, emulator.release).start()
        detector.close()
        thread.join(5.0)
        assert errors in ([], ['the backend is closed'])


def test_two_cores_and_then_one_core_twice(small):
    with clean():
        for cores in ((0, 1), (0, 0)):
            detectors = [opened(small, dla_core=core) for core in cores]
            for slot in range(2):
                for detector in detectors:
                    detector.submit(slot, VIEW, Thresholds())
            for slot in range(2):
                for detector in detectors:
                    assert len(detector.collect(slot, 5.0).prediction.score) > 0
            for detector in detectors:
                detector.close()


def test_a_hundred_rounds_leave_nothing_behind(small):
    def live() -> None:
        with opened(small) as detector:
            detector(VIEW)

    assert_flat(live)
