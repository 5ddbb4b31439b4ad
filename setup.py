"""Build description of the ament_python package dla_ros."""

from pathlib import Path

from setuptools import find_packages, setup

PACKAGE = 'dla_ros'
TREES = ('models', 'demo')


def tree_files(top: str) -> list[tuple[str, list[str]]]:
    """Return the data_files rows that install every file below `top` into the share folder."""
    folders = sorted({path.parent for path in Path(top).rglob('*') if path.is_file()})
    return [
        (f'share/{PACKAGE}/{folder}', [str(p) for p in sorted(folder.iterdir()) if p.is_file()])
        for folder in folders
    ]


setup(
    name=PACKAGE,
    version='0.1.0',
    packages=find_packages(include=[PACKAGE, f'{PACKAGE}.*']),
    package_data={
        PACKAGE: ['py.typed', 'cuda/kernels/*.cu*', 'emulator/native/*.[ch]pp', 'replay/*.j2'],
    },
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{PACKAGE}']),
        (f'share/{PACKAGE}', ['package.xml']),
        (f'share/{PACKAGE}/launch', [str(p) for p in Path('launch').glob('*.launch.py')]),
        (f'share/{PACKAGE}/config', [str(p) for p in Path('config').glob('*.yaml')]),
        *(row for top in TREES for row in tree_files(top)),
    ],
    python_requires='>=3.10',
    install_requires=['numpy', 'onnxruntime', 'pydantic>=2', 'PyYAML', 'rich'],
    zip_safe=True,
    maintainer='dla_ros maintainers',
    maintainer_email='maintainers@dla-ros.example',
    description='Neural networks on the NVIDIA DLA from ROS 2, in Python.',
    license='Apache-2.0',
    entry_points={
        'console_scripts': [
            'dla_node = dla_ros.main:main',
            'play = dla_ros.tools.play:main',
            'listen = dla_ros.tools.listen:main',
            'demo = dla_ros.tools.demo:main',
            'replay = dla_ros.tools.replay:main',
            'build = dla_ros.tools.build:main',
            'schema = dla_ros.tools.schema:main',
            'check = dla_ros.tools.check:main',
        ],
        'pytest11': ['dla_ros = dla_ros.replay.plugin'],
    },
)
