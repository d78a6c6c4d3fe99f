// Written by tools/build_web_types.py from report/schemas; do not edit.

export type RunDocument = {
  kind: "run";
  title: string;
  scenario: string;
  about: string;
  seed: number;
  seconds: number;
  start: string;
  story: string[];
  compare: number[];
  podsShown: boolean;
  policies: PolicyRun[];
};

export type PolicyRun = {
  name: string;
  figures: Figures;
  series: Series;
  machines: Machines;
  workloads: Workloads;
  stays: Stays;
  commands: RunCommand[];
  outside: Outside[];
};

export type Figures = {
  podsDisrupted: number;
  podsDisruptedMoreThanOnce: number;
  nodesStarted: number;
  shortLivedNodes: number;
  nodeHours: number;
  cost: number;
  pendingPodSeconds: number;
  violations: number;
};

export type Series = {
  seconds: Numbers;
  nodes: Numbers;
  costPerHour: Numbers;
  pods: Numbers;
  pending: Numbers;
  podsDisrupted: Numbers;
  gates: Record<string, Numbers>;
};

export type Machines = {
  name: Texts;
  pool: Texts;
  zone: Texts;
  type: Texts;
  capacityType: Texts;
  price: Numbers;
  cpu: Numbers;
  memory: Numbers;
  started: Numbers;
  leaving: Numbers;
  ended: Numbers;
  fate: Texts;
  command: Numbers;
};

export type Workloads = {
  name: Texts;
  cpu: Numbers;
  memory: Numbers;
  daemon: Numbers;
};

export type Stays = {
  workload: Numbers;
  machine: Numbers;
  created: Numbers;
  began: Numbers;
  ended: Numbers;
  moved: Numbers;
};

export type RunCommand = {
  at: number;
  ended: number;
  outcome: "done" | "undone" | "under way";
  action: string;
  reason: string;
  nodes: Texts;
  replacements: Texts;
  pods: number;
  savings: number;
  required: number;
  why: string;
};

export type Outside = {
  at: number;
  what: string;
};

export type Numbers = number[];

export type Texts = string[];

export type SweepDocument = {
  kind: "sweep";
  title: string;
  points: SweepPoint[];
  run: Record<string, unknown> | null;
};

export type SweepPoint = {
  policy: string;
  cost: number;
  costSpread: number;
  podsDisrupted: number;
  podsDisruptedSpread: number;
  front: boolean;
  recommended: boolean;
};
