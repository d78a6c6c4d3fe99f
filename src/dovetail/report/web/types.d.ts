// Written by tools/build_web_types.py from report/schemas; do not edit.

export type LiveDocument = {
  kind: "live";
  now: string;
  source: LiveSource;
  commands: CommandNow[];
  rolls: Roll[];
  next: Coming[];
  calendar: CalendarPool[];
  money: Money;
  outcomes: Outcomes;
  history: LiveHistory;
  lives: Lives;
  warnings: Texts;
  plan: Record<string, unknown>;
};

export type LiveSource = {
  kind: "cluster" | "capture" | "recording" | "simulation";
  name: string;
  problem: string;
  speed: number;
  speeds: Numbers;
  ended: boolean;
  position: number;
  length: number;
  seekable: boolean;
};

export type Roll = {
  nodePool: string;
  cause: string;
  total: number;
  replaced: number;
  inFlight: number;
  waiting: number;
  blocked: number;
  activeDomain: string;
  domains: RollDomain[];
  blockers: RollBlocker[];
  expectedEnd: string;
  why: string;
};

export type RollDomain = {
  value: string;
  total: number;
  replaced: number;
  state: string;
};

export type RollBlocker = {
  node: string;
  gate: string;
  why: string;
};

export type CommandNow = {
  id: string;
  by: string;
  action: string;
  reason: string;
  seconds: number;
  nodes: Texts;
  replacements: Texts;
  steps: Texts;
  podsLeft: number;
  draining: number;
  heldBy: string;
};

export type Coming = {
  at: string;
  seconds: number;
  what: string;
  pool: string;
  until: string;
};

export type CalendarPool = {
  pool: string;
  nodes: number;
  used: number;
  reasons: CalendarReason[];
};

export type CalendarReason = {
  reason: string;
  stretches: CalendarStretch[];
};

export type CalendarStretch = {
  begin: string;
  end: string;
  allowed: number;
};

export type Outcomes = {
  commands: number;
  held: number;
  promised: number;
  saved: number;
  reopened: number;
  pods: number;
  movedAgain: number;
  last: Outcome[];
};

export type Outcome = {
  id: string;
  action: string;
  pools: string[];
  promised: number;
  saved: number;
  reopened: number;
  pods: number;
  movedAgain: number;
};

export type Money = {
  costPerHour: number;
  paid: string;
  commitments: CommitmentUse[];
  savedPerHour: number | null;
  savedSoFar: number | null;
  commands: number;
  held: Held[];
};

export type CommitmentUse = {
  name: string;
  kind: string;
  usedShare: number;
  free: string;
};

export type Held = {
  gate: string;
  nodes: number;
  costPerHour: number;
};

export type LiveHistory = {
  since: string;
  seconds: Numbers;
  nodes: Numbers;
  cost: Numbers;
  pods: Numbers;
  pending: Numbers;
  events: LiveEvent[];
};

export type Lives = {
  name: Texts;
  pool: Texts;
  zone: Texts;
  type: Texts;
  capacityType: Texts;
  price: Numbers;
  started: Numbers;
  leaving: Numbers;
  ended: Numbers;
  fate: Texts;
  moved: Numbers[];
};

export type LiveEvent = {
  at: string;
  kind: "began" | "ended" | "came" | "went";
  text: string;
};

export type Numbers = number[];

export type Texts = string[];

export type PlanDocument = {
  kind: "plan";
  title: string;
  now: string;
  profile: string;
  live: boolean;
  nodes: PlanNodes;
  chains: Numbers[];
  checks: Check[];
  pods: PlanPods;
  workloads: Texts;
  actions: PlanAction[];
  after: AfterNodes;
  moves: Moves[];
  remedies: Record<string, string>;
  examples: Example[];
  budgets: BudgetLeft[];
};

export type PlanNodes = {
  name: Texts;
  pool: Texts;
  zone: Texts;
  type: Texts;
  capacityType: Texts;
  price: Numbers;
  age: Numbers;
  cpu: Numbers;
  memory: Numbers;
  cpuUsed: Numbers;
  memoryUsed: Numbers;
  verdict: Texts;
  why: Texts;
  action: Numbers;
  cost: Numbers;
  closing: Numbers;
};

export type AfterNodes = {
  name: Texts;
  pool: Texts;
  zone: Texts;
  type: Texts;
  price: Numbers;
  cpu: Numbers;
  memory: Numbers;
  cpuUsed: Numbers;
  memoryUsed: Numbers;
  isNew: Numbers;
};

export type Check = {
  gate: string;
  passed: boolean;
  why: string;
  figures: string;
};

export type PlanPods = {
  name: Texts;
  node: Numbers;
  workload: Numbers;
  cpu: Numbers;
  memory: Numbers;
  moves: Numbers;
};

export type PlanAction = {
  action: string;
  reason: string;
  nodes: Texts;
  savings: number;
  required: number;
  pods: number;
  replacements: Texts;
};

export type Moves = {
  node: string;
  to: MoveTo[];
  stuck: Texts;
};

export type MoveTo = {
  node: string;
  pods: Texts;
};

export type Example = {
  node: string;
  verdict: string;
  pool: string;
  changes: Change[];
};

export type Change = {
  if: string;
  then: string;
  opens: boolean;
};

export type BudgetLeft = {
  nodePool: string;
  reason: string;
  allowed: number;
  used: number;
  left: number;
};

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
