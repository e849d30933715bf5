"""Compares forces of a Lennard-Jones fluid with bonds, angles and torsions on OpenMM's CUDA
platform with those on its Reference platform.

openmm_forces.py [ATOMS]: ATOMS is the number of atoms (default: 8,000).
"""

import sys
import time

import numpy as np
import openmm

SPACING_NM = 0.38
# Largest median of the relative differences of forces that OpenMM's own installation test accepts.
MEDIAN_MAX = 1e-4
ENERGY_MAX = 1e-5


def system_of(atoms, side):
    system = openmm.System()
    box = side * SPACING_NM
    system.setDefaultPeriodicBoxVectors((box, 0, 0), (0, box, 0), (0, 0, box))
    pairs = openmm.NonbondedForce()
    pairs.setNonbondedMethod(openmm.NonbondedForce.CutoffPeriodic)
    pairs.setCutoffDistance(min(1.0, box / 2.1))
    for _ in range(atoms):
        system.addParticle(39.9)
        pairs.addParticle(0, 0.34, 0.997)
    bonds, angles, torsions = (
        openmm.HarmonicBondForce(),
        openmm.HarmonicAngleForce(),
        openmm.PeriodicTorsionForce(),
    )
    for first in range(0, atoms - 4, 4):
        bonds.addBond(first, first + 1, SPACING_NM, 1000.0)
        angles.addAngle(first, first + 1, first + 2, 2.0, 50.0)
        torsions.addTorsion(first, first + 1, first + 2, first + 3, 2, 0.5, 3.0)
    for force in (pairs, bonds, angles, torsions):
        system.addForce(force)
    return system


def forces_on(name, system, positions):
    started = time.monotonic()
    platform = openmm.Platform.getPlatformByName(name)
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform)
    context.setPositions(positions)
    state = context.getState(getForces=True, getEnergy=True)
    energy = state.getPotentialEnergy()._value
    print(f"{name}: {energy:.4f} kJ/mol after {time.monotonic() - started:.1f} s", flush=True)
    return state.getForces(asNumpy=True)._value, energy


def main():
    atoms = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    side = next(side for side in range(1, atoms + 1) if side**3 >= atoms)
    sites = np.array(
        [(x, y, z) for x in range(side) for y in range(side) for z in range(side)], float
    )[:atoms]
    positions = sites * SPACING_NM + np.random.default_rng(1).uniform(-0.03, 0.03, sites.shape)
    system = system_of(atoms, side)
    wanted, wanted_energy = forces_on("Reference", system, positions)
    got, energy = forces_on("CUDA", system, positions)
    sizes = np.linalg.norm(wanted, axis=1) + np.linalg.norm(got, axis=1)
    apart = 2 * np.linalg.norm(wanted - got, axis=1) / sizes
    energy_apart = abs(energy - wanted_energy) / abs(wanted_energy)
    print(
        f"{atoms} atoms: forces differ by {np.median(apart):.1e} (median) and {apart.max():.1e} (most), the energy by {energy_apart:.1e}"
    )
    if not (np.median(apart) < MEDIAN_MAX and energy_apart < ENERGY_MAX):
        sys.exit("Test failed")
    print("Test passed")


if __name__ == "__main__":
    main()
