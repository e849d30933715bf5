"""A box of TIP3P water with PME on OpenMM's OpenCL platform: openmm_water.py FILE [DEVICES].
DEVICES is a list such as 0,1.

Writes the forces at the start to FILE, then computes 100 steps.
"""

import sys
import time

import numpy
import openmm
from openmm import app, unit

field = app.ForceField("amber14/tip3p.xml")
model = app.Modeller(app.Topology(), [] * unit.nanometer)
model.addSolvent(field, model="tip3p", boxSize=openmm.Vec3(2.5, 2.5, 2.5) * unit.nanometer)
system = field.createSystem(
    model.topology,
    nonbondedMethod=app.PME,
    nonbondedCutoff=0.9 * unit.nanometer,
    constraints=app.HBonds,
    rigidWater=True,
)
integrator = openmm.VerletIntegrator(0.001 * unit.picoseconds)
integrator.setConstraintTolerance(1e-6)
platform = openmm.Platform.getPlatformByName("OpenCL")
properties = {"Precision": "single", "DeviceIndex": sys.argv[2] if len(sys.argv) > 2 else "0"}
simulation = app.Simulation(model.topology, system, integrator, platform, properties)
simulation.context.setPositions(model.positions)


def forces():
    state = simulation.context.getState(getForces=True)
    return state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)


first = forces()
start = time.perf_counter()
for _ in range(100):  # one synchronisation per step, as a program that looks at each step has it
    simulation.step(1)
    simulation.context.getState(getEnergy=True).getPotentialEnergy()
took = time.perf_counter() - start
# After some steps, the result depends on the order of additions, which differs between runs. So
# only the start is compared.
assert numpy.isfinite(forces()).all()
numpy.savez(sys.argv[1], forces=first)
devices = platform.getPropertyValue(simulation.context, "DeviceIndex").split(",")
print(
    f"{model.topology.getNumAtoms()} atoms, 100 steps on {len(devices)} device{'s'[: len(devices) > 1]} in {took:.2f} s"
)
