"""The lifecycle node: parameters, topics, transitions. The work is done by the pipeline."""

from __future__ import annotations

from collections.abc import Callable
import difflib
import functools
import traceback
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    ParameterType,
    SetParametersResult,
)
from rclpy.clock import Clock, ClockType
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter as RosParameter
from rclpy.qos import (
    DurabilityPolicy,
    qos_policy_name_from_kind,
    qos_profile_sensor_data,
    qos_profile_system_default,
    QoSProfile,
)
from std_msgs.msg import Header

from dla_ros import diagnostics
from dla_ros.backends.base import BackendOptions
from dla_ros.debug_image import DebugImage
from dla_ros.decoders.base import Thresholds
from dla_ros.detector import Detector, Result
from dla_ros.ending import REPLACE_PROCESS
from dla_ros.errors import BackendError, Remedy
from dla_ros.geometry import Rect
from dla_ros.image import ImageError, ImageView
from dla_ros.messages import label_info_message
from dla_ros.model import Model, ModelError
from dla_ros.parameters import check_all, Parameter, ParameterError, PARAMETERS
from dla_ros.pipeline import Pipeline, Statistics
from dla_ros.recovery import RecoveryPolicy
from dla_ros.topics import result_topics, Source, SOURCES, Topic

NODE_NAME = 'dla_node'
_BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
_ROS_PARAMETERS = ('use_sim_time', 'start_type_description_service', 'qos_overrides.')
_DRAIN = 0.8  # Seconds for the frames in hand when the node ends; the promise is 2 s in all.

Callback = Callable[['DlaNode', LifecycleState], TransitionCallbackReturn]


def _logged(transition: Callback) -> Callback:
    """Log what a transition raises, for rclpy swallows it, and release what it acquired."""

    @functools.wraps(transition)
    def guarded(node: DlaNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(node, state)
        except (ParameterError, ModelError, BackendError) as error:
            node.get_logger().error(f'{transition.__name__} failed: {error}')
            if isinstance(error, BackendError) and error.remedy is Remedy.RESTART:
                node.give_up(str(error))
        except Exception:
            node.get_logger().error(f'{transition.__name__} failed:\n{traceback.format_exc()}')
        node.close()
        # Nothing is held any more, so every other state than unconfigured would be a lie.
        if transition.__name__ == 'on_configure':
            return TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.ERROR

    return guarded


class DlaNode(LifecycleNode):  # type: ignore[misc]
    """Subscribes to images, runs the network, publishes what it makes of them.

    Every topic is relative, see topics.py; /diagnostics is the exception.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(NODE_NAME, **options)
        self._guard_transitions()
        self._statistics = Statistics()
        self._reported: dict[str, Any] = self._statistics.snapshot()
        self._said: set[str] = set()
        self.exit_code = 0
        self.on_give_up: Callable[[], None] = lambda: None
        self._model: Model | None = None
        self._detector: Detector | None = None
        self._pipeline: Pipeline | None = None
        self._recovery = RecoveryPolicy(0, 0.0)
        self._trouble = ''
        self._retry: Any = None
        self._result_publishers: list[tuple[Topic, Any]] = []
        self._label_info: Any = None
        self._debug: DebugImage | None = None
        self._subscription: Any = None
        self._settings: dict[str, Any] = {}
        self._thresholds = Thresholds()
        self._roi: Rect | None = None
        self._declare_parameters()
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        # A steady clock: under simulated time without /clock a ROS timer would never fire.
        self._timer = self.create_timer(
            1.0, self._report, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )

    # Parameters

    def _declare_parameters(self) -> None:
        for parameter in PARAMETERS:
            # With its range, rclpy would raise for a wrong value; configure says it better.
            self.declare_parameter(
                parameter.name, parameter.default, _descriptor(parameter, ranges=False)
            )
            try:
                parameter.check(self.get_parameter(parameter.name).value)
            except ParameterError:
                continue
            self.set_descriptor(parameter.name, _descriptor(parameter))
        for name in self._parameter_overrides:
            if name not in _BY_NAME and not name.startswith(_ROS_PARAMETERS):
                close = difflib.get_close_matches(name, _BY_NAME, 1)
                hint = f'; did you mean {close[0]}?' if close else ''
                self.get_logger().warning(f'unknown parameter {name} has no effect{hint}')
        self.add_on_set_parameters_callback(self._check_parameters)
        self.add_post_set_parameters_callback(lambda changed: self._apply_parameters())

    def _check_parameters(self, changes: list[RosParameter]) -> SetParametersResult:
        faults = []
        for change in changes:
            parameter = _BY_NAME.get(change.name)
            if parameter is None:
                continue
            try:
                value = parameter.check(change.value)
                if self._model is not None:
                    self._check_while_configured(parameter, value)
            except ParameterError as error:
                faults.append(str(error))
        return SetParametersResult(successful=not faults, reason='; '.join(faults))

    def _check_while_configured(self, parameter: Parameter, value: Any) -> None:
        if not parameter.dynamic and value != self._settings[parameter.name]:
            raise ParameterError(
                f'{parameter.name} cannot change while the node is configured; '
                f'first: ros2 lifecycle set {self.get_fully_qualified_name()} cleanup'
            )
        if parameter.name == 'class_filter':
            self._class_ids(value)

    def _class_ids(self, names: list[str]) -> frozenset[int] | None:
        assert self._model is not None
        labels = self._model.labels
        # Launch files cannot write an empty list of strings; [''] is how they say it.
        wanted = [name for name in names if name]
        unknown = [name for name in wanted if name not in labels]
        if unknown:
            close = difflib.get_close_matches(unknown[0], labels, 3) or list(labels[:3])
            raise ParameterError(
                f'class_filter: the model has no label {", ".join(map(repr, unknown))}; '
                f'it has, for example, {", ".join(map(repr, close))}'
            )
        return frozenset(labels.index(name) for name in wanted) or None

    def _apply_parameters(self) -> None:
        """Take over the values that may change at run time, all of them checked before."""
        if self._model is None:
            return
        values = self._values()
        self._thresholds = Thresholds(
            confidence=values['confidence_threshold'],
            nms=values['nms_threshold'],
            class_agnostic=values['class_agnostic_nms'],
            max_detections=values['max_detections'],
            class_ids=self._class_ids(values['class_filter']),
        )

    def _values(self) -> dict[str, Any]:
        return check_all({p.name: self.get_parameter(p.name).value for p in PARAMETERS})

    @property
    def autostart(self) -> bool:
        """Whether the node is to configure and activate itself."""
        return self.get_parameter('autostart').value is True

    # Transitions

    def start(self) -> None:
        """Configure and activate; a failure is logged and leaves the node unconfigured."""
        if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()
            return
        self.get_logger().error(
            'not started; mend the above and run: '
            f'ros2 lifecycle set {self.get_fully_qualified_name()} configure'
        )

    @_logged
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Open the model on the backend and create the publishers."""
        values = self._values()
        self._settings = values
        if self._source.type is None:
            raise ParameterError(
                "input 'tensors' needs the package isaac_ros_tensor_list_interfaces, which is not "
                'installed here'
            )
        self._model = Model.load(values['model'])
        self._recovery = RecoveryPolicy(values['max_recoveries'], values['recovery_delay'])
        self._detector = self._open_detector()
        self._apply_parameters()
        self._roi = Rect(
            values['roi_top_left_x'], values['roi_top_left_y'],
            values['crop_width'], values['crop_height'],
        )
        self._create_publishers(self._detector)
        backend = self._detector.backend
        tensors = '; '.join(map(str, (*backend.inputs, *backend.outputs)))
        about = ', '.join(f'{key} {value}' for key, value in backend.about.items())
        self.get_logger().info(
            f'model {self._model.name} on {backend.name} ({about}): {tensors}'
        )
        return super().on_configure(state)

    def _create_publishers(self, detector: Detector) -> None:
        values, model = self._settings, detector.model
        makes = detector.decoder.makes
        if makes is None and values['output'] == 'predictions':
            raise ParameterError(
                f"output: model {model.name!r} has no decoder (type none), so there are no "
                "predictions; set output:='tensors'"
            )
        for topic in result_topics(model, makes, detector.backend.outputs, values['output']):
            publisher = self.create_lifecycle_publisher(
                topic.type, topic.name,
                _qos(values['output_qos'], values['output_queue_size']),
                event_callbacks=PublisherEventCallbacks(
                    incompatible_qos=functools.partial(
                        self._warn_qos, topic.name, values['output_qos']
                    )
                ),
            )
            self._result_publishers.append((topic, publisher))
        if makes is not None and values['output'] != 'tensors':
            self._publish_label_info(model)
            self._debug = DebugImage(self)

    def _publish_label_info(self, model: Model) -> None:
        header = Header(stamp=self.get_clock().now().to_msg())
        message = label_info_message(
            model.name, model.labels, self._thresholds.confidence, header
        )
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._label_info = self.create_publisher(type(message), 'label_info', latched)
        self._label_info.publish(message)

    def _open_detector(self) -> Detector:
        values = self._settings
        assert self._model is not None
        return Detector.open(
            self._model,
            backend=values['backend'],
            options=BackendOptions(
                values['depth'], values['threads'], values['dla_core'], values['task_timeout'],
                values['emulate'], values['staging'],
            ),
            tensors=values['output'] != 'predictions',
        )

    @_logged
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start the pipeline and take images."""
        result = super().on_activate(state)
        self._start_pipeline()
        source = self._source
        self._subscription = self.create_subscription(
            source.type, self.resolve_topic_name(source.topic) + source.suffix,
            self._take,
            _qos(self._settings['input_qos'], self._settings['input_queue_size']),
            event_callbacks=SubscriptionEventCallbacks(
                incompatible_qos=functools.partial(
                    self._warn_qos, source.topic, self._settings['input_qos']
                )
            ),
        )
        names = ', '.join(publisher.topic_name for _, publisher in self._result_publishers)
        self.get_logger().info(f'{self._subscription.topic_name} -> {names}')
        return result

    @property
    def _source(self) -> Source:
        values = self._settings
        return SOURCES[
            'tensors' if values['input'] == 'tensors' else values['image_transport']
        ]

    def _start_pipeline(self) -> None:
        if self._detector is None:  # It broke before the node was deactivated.
            self._detector = self._open_detector()
        self._pipeline = Pipeline(
            self._detector,
            depth=self._settings['depth'],
            statistics=self._statistics,
            on_result=functools.partial(self._publish, self._detector.model.labels),
            on_failure=functools.partial(self._fail_frame, self._detector),
            frame_timeout=self._settings['frame_timeout'],
        )

    @_logged
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Take no more images; those in hand are still published."""
        self._stop_recovery()
        timeout = self._settings['frame_timeout']
        if not self._stop_pipeline(timeout):
            raise BackendError(f'frames are still in flight after {timeout:g} s')
        return super().on_deactivate(state)

    @_logged
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release the backend."""
        self.close()
        return super().on_cleanup(state)

    @_logged
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Publish what is in hand and release everything."""
        self.close()
        return super().on_shutdown(state)

    @_logged
    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything and go back to unconfigured."""
        self.close()
        return super().on_error(state)

    # Recovery

    def _fail_frame(self, detector: Detector, reason: str, text: str, remedy: Remedy) -> None:
        """Say that a frame failed and, if it takes more than that, recover; on any thread."""
        self._say_failure(reason, text)
        if remedy is not Remedy.NEXT_FRAME and self.executor is not None:
            self.executor.create_task(self._recover, detector, text, remedy)

    def _recover(self, detector: Detector, text: str, remedy: Remedy) -> None:
        """Give up the backend that broke and, if that helps, see to a new one."""
        if self._detector is not detector:
            return  # Another frame of it has said so already.
        self._trouble = text
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close(_DRAIN)
        if not self._close_detector() or remedy is Remedy.RESTART:
            self.give_up(text)
        else:
            self._schedule_retry(text)

    def _schedule_retry(self, text: str) -> None:
        delay = self._recovery.next_delay()
        if delay is None:
            self.give_up(f'{text} (after {self._recovery.attempts} recoveries)')
            return
        self._trouble = text
        self.get_logger().error(
            f'the backend broke and is opened anew in {delay:g} s '
            f'({self._recovery.attempts} of {self._recovery.most}): {text}'
        )
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._retry = self.create_timer(delay, self._reopen, clock=steady)

    def _reopen(self) -> None:
        self._stop_recovery()
        try:
            self._start_pipeline()
        except BackendError as error:
            if error.remedy is Remedy.RESTART:
                self.give_up(str(error))
            else:
                self._schedule_retry(str(error))
        else:
            self.get_logger().info('the backend is back')

    def _stop_recovery(self) -> None:
        self._trouble = ''
        retry, self._retry = self._retry, None
        if retry is not None:
            self.destroy_timer(retry)

    def give_up(self, text: str) -> None:
        """Ask for a new process: only that helps."""
        if self.exit_code:
            return
        self.exit_code = REPLACE_PROCESS
        self._trouble = f'the process has to be replaced: {text}'
        self.get_logger().fatal(f'exit code {REPLACE_PROCESS}: {self._trouble}')
        self._report()
        self.on_give_up()

    def _guard_transitions(self) -> None:
        """Answer a transition id that does not exist instead of dying of it.

        rclpy 7.1 lets the error out of executor.spin().
        """
        service = self._service_change_state
        change_state = service.callback

        def guarded(
            request: ChangeState.Request, response: ChangeState.Response
        ) -> ChangeState.Response:
            try:
                return change_state(request, response)
            except rclpy_implementation.RCLError as error:
                self.get_logger().warning(f'transition {request.transition.id} refused: {error}')
                response.success = False
                return response

        service.callback = guarded

    # Frames

    def _take(self, message: Any) -> None:
        self._statistics.receive()
        pipeline, detector = self._pipeline, self._detector
        if pipeline is None or detector is None:  # It is being recovered.
            self._statistics.drop('recovery')
            return
        try:
            (spec,) = detector.backend.inputs
            data = self._source.read(message, self._settings['input_encoding'], spec)
        except ImageError as error:
            self._statistics.drop(error.kind)
            self._say_failure(error.kind, str(error))
            return
        view = data if isinstance(data, ImageView) else None
        pipeline.push(data, (message.header, view), self._thresholds, self._roi)

    def _publish(
        self, labels: tuple[str, ...], result: Result, tag: tuple[Header, ImageView | None]
    ) -> None:
        header, view = tag
        for topic, publisher in self._result_publishers:
            message = topic.message(result, header, labels)
            if message is not None:
                publisher.publish(message)
        if self._debug is not None and view is not None and result.prediction is not None:
            self._debug.offer(view, result.prediction, header, labels)

    # What the node says

    def _say_failure(self, reason: str, text: str) -> None:
        if reason in diagnostics.FAILURES:
            self.get_logger().error(f'{reason}: {text}', throttle_duration_sec=5.0)
        else:
            self._say_once(reason, f'image skipped: {text} (more of this kind are only counted)')

    def _say_once(self, key: str, text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self.get_logger().warning(text)

    def _warn_qos(self, topic: str, mine: str, event: Any) -> None:
        policy = qos_policy_name_from_kind(event.last_policy_kind)
        self._say_once(
            f'qos {topic}',
            f'an endpoint of {topic} asks for or offers another {policy} than this node '
            f'({mine}); nothing passes between the two',
        )

    def _report(self) -> None:
        """Publish the diagnostics and look for what would silently keep images away."""
        snapshot = self._statistics.snapshot()
        state = self._state_machine.current_state[1]
        name = self.get_fully_qualified_name()
        about = self._detector.backend.about if self._detector else {}
        status = diagnostics.status(
            name, state, snapshot, self._reported, trouble=self._trouble, about=about
        )
        self._diagnostics.publish(
            diagnostics.array(self.get_clock().now().to_msg(), status)
        )
        self._reported = snapshot
        names = [
            f'{space.rstrip("/")}/{node}' for node, space in self.get_node_names_and_namespaces()
        ]
        if names.count(name) > 1:
            self._say_once(
                'name', f'another node is called {name} too; rename one: --ros-args -r __node:=...'
            )
        if self._subscription is not None:
            topic = self._subscription.topic_name
            wanted = f'sensor_msgs/msg/{self._subscription.msg_type.__name__}'
            for publisher in self.get_publishers_info_by_topic(topic):
                if publisher.topic_type != wanted:
                    self._say_once(
                        f'type {publisher.topic_type}',
                        f'{publisher.node_name} publishes {publisher.topic_type} on {topic}, '
                        f'but this node takes {wanted}',
                    )

    # Ending

    def _stop_pipeline(self, timeout: float) -> bool:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self.destroy_subscription(subscription)
        pipeline, self._pipeline = self._pipeline, None
        return pipeline is None or pipeline.close(timeout)

    def close(self) -> bool:
        """Publish what is in hand and release everything; safe to call twice, from any state.

        What cannot be released is logged, and False is returned.
        """
        if not self.exit_code:
            self._stop_recovery()
        try:
            self._stop_pipeline(_DRAIN)
        finally:
            released = self._close_detector()
            self._model = None
            self._destroy_publishers()
        return released

    def _destroy_publishers(self) -> None:
        debug, self._debug = self._debug, None
        if debug is not None:
            debug.close()
        label_info, self._label_info = self._label_info, None
        if label_info is not None:
            self.destroy_publisher(label_info)
        publishers, self._result_publishers = self._result_publishers, []
        for _, publisher in publishers:
            self.destroy_lifecycle_publisher(publisher)

    def _close_detector(self) -> bool:
        """Release the backend; return False if only a new process can go on."""
        detector, self._detector = self._detector, None
        try:
            if detector is not None:
                detector.close()
        except BackendError as error:
            self.get_logger().error(f'release failed: {error}')
            if error.remedy is Remedy.RESTART:
                self.give_up(str(error))
                return False
        return True


def _descriptor(parameter: Parameter, *, ranges: bool = True) -> ParameterDescriptor:
    types = {
        'bool': ParameterType.PARAMETER_BOOL,
        'integer': ParameterType.PARAMETER_INTEGER,
        'double': ParameterType.PARAMETER_DOUBLE,
        'string': ParameterType.PARAMETER_STRING,
        'string array': ParameterType.PARAMETER_STRING_ARRAY,
    }
    text = parameter.description + f' Unit: {parameter.unit}.' * bool(parameter.unit)
    descriptor = ParameterDescriptor(
        name=parameter.name,
        type=types[parameter.type_name],
        description=text,
        additional_constraints=parameter.constraints,
        # An integer for a double is fine, and so is an empty list, which has no type.
        dynamic_typing=True,
    )
    if ranges and parameter.least is not None and parameter.most is not None:
        if isinstance(parameter.default, float):
            descriptor.floating_point_range = [
                FloatingPointRange(from_value=parameter.least, to_value=parameter.most)
            ]
        else:
            descriptor.integer_range = [
                IntegerRange(from_value=int(parameter.least), to_value=int(parameter.most))
            ]
    return descriptor


def _qos(name: str, depth: int) -> QoSProfile:
    profiles = {
        'SENSOR_DATA': qos_profile_sensor_data,
        'SYSTEM_DEFAULT': qos_profile_system_default,
        'DEFAULT': QoSProfile(depth=depth),
    }
    profile = profiles[name]
    return QoSProfile(
        depth=depth, reliability=profile.reliability, durability=profile.durability
    )
