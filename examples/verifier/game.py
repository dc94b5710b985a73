"""Burrow, a deterministic game: find the way out of a maze. This is the program of a version, and replays a recording.

    python game.py SAVE

prints its verdict, {"verdict": "passed", "ticks": 57, "why": …}, or {"error": …} and ends with status 3 when the recording
cannot be played. It stands alone: the service packs it, the daemon unpacks and runs it, and neither trusts what a save does
to it.

The maze, the gems and the moles follow from the seed alone. A recording has a line for each input: U, D, L or R to walk, J to
jump two cells ahead, H to wake a mole, ". 12" to rest for so many ticks, and "= 81f0" where the player's game noted its state. Each
input takes a tick. Moles wander, and each has a young one every 32 ticks.
"""

import json
import sys
from collections import deque
from pathlib import Path

WIDTH, HEIGHT = 31, 15
START, EXIT = (1, 1), (WIDTH - 2, HEIGHT - 2)
STEPS = {"U": (0, -1), "D": (0, 1), "L": (-1, 0), "R": (1, 0)}
GEMS, BREED_TICKS, AWAKE_MAX, CLOSE_TICKS = 4, 32, 50, 2
HEADER_LINES = 2  # what kind of file it is, and what is claimed, as JSON


class Unplayable(Exception):
    """The recording cannot be played to its end."""


class Chance:
    """Numbers that look random and are the same on every machine."""

    def __init__(self, seed: int) -> None:
        self.state = seed % 2**31

    def below(self, bound: int) -> int:
        """The next number, from 0 on and below a bound."""
        self.state = (1103515245 * self.state + 12345) % 2**31
        return (self.state >> 8) % bound


class Burrow:
    """The board and whoever is on it."""

    def __init__(self, seed: int) -> None:
        self.chance = Chance(seed)
        self.open = self._dig()
        self.gems = {self._cell() for _ in range(GEMS)} - {START, EXIT}
        self.at, self.ahead, self.tick = START, STEPS["R"], 0
        self.moles: list[tuple[int, int]] = []

    def _cell(self) -> tuple[int, int]:
        return 2 * self.chance.below(WIDTH // 2) + 1, 2 * self.chance.below(HEIGHT // 2) + 1

    def _dig(self) -> list[list[bool]]:
        """A maze with one way between any two cells, dug depth first."""
        board = [[False] * WIDTH for _ in range(HEIGHT)]
        board[START[1]][START[0]] = True
        way = [START]
        while way:
            x, y = way[-1]
            ways = [
                (dx, dy)
                for dx, dy in STEPS.values()
                if 0 < x + 2 * dx < WIDTH
                and 0 < y + 2 * dy < HEIGHT
                and not board[y + 2 * dy][x + 2 * dx]
            ]
            if not ways:
                way.pop()
                continue
            dx, dy = ways[self.chance.below(len(ways))]
            board[y + dy][x + dx] = board[y + 2 * dy][x + 2 * dx] = True
            way.append((x + 2 * dx, y + 2 * dy))
        return board

    def play(self, line: str) -> None:
        """One line of a recording."""
        move, _, rest = line.partition(" ")
        if move == "=":
            if rest != self.noted():
                raise Unplayable(f"at tick {self.tick} the state is {self.noted()}, not {rest}")
        elif move == ".":
            for _ in range(int(rest or 1)):
                self._pass()
        elif move in STEPS:
            self.ahead = STEPS[move]
            self._walk(1)
        elif move == "J":
            self._walk(2)
        elif move == "H":
            self.moles.append(EXIT)
            self._pass()
        else:
            raise Unplayable(f"at tick {self.tick} there is no move {move!r}")

    def noted(self) -> str:
        """The state in four letters, as recordings note it."""
        sum_of = self.tick * 31 + self.at[0] * 7 + self.at[1] * 13 + len(self.gems)
        return f"{(sum_of * 2654435761) % 65536:04x}"

    def _walk(self, cells: int) -> None:
        x, y = self.at[0] + cells * self.ahead[0], self.at[1] + cells * self.ahead[1]
        # A jump over the last wall ends beyond the board, and the game with it: a defect that the version has.
        if self.open[y][x]:
            self.at = (x, y)
            self.gems.discard(self.at)
        self._pass()

    def _pass(self) -> None:
        self.tick += 1
        if self.tick % BREED_TICKS == 0:
            self.moles += self.moles
        for no, (x, y) in enumerate(self.moles[:AWAKE_MAX]):  # the others sleep
            dx, dy = list(STEPS.values())[self.chance.below(4)]
            if self.open[y + dy][x + dx]:
                self.moles[no] = (x + dx, y + dy)


def shortest(board: Burrow, start: tuple[int, int], goal: tuple[int, int]) -> str:
    """The inputs of the shortest way, as letters."""
    ways, waiting = {start: ""}, deque([start])
    while waiting:
        x, y = waiting.popleft()
        for letter, (dx, dy) in STEPS.items():
            there = (x + dx, y + dy)
            if board.open[y + dy][x + dx] and there not in ways:
                ways[there] = ways[x, y] + letter
                waiting.append(there)
    return ways[goal]


def judge(text: str) -> tuple[str, int, str]:
    """The verdict on a recording, how many ticks it took, and why."""
    _, header, *lines = text.splitlines()
    claim = json.loads(header)
    board = Burrow(claim["seed"])
    way = len(shortest(board, START, EXIT))
    for line in lines:
        board.play(line)
    off = abs(board.tick - claim["ticks"])
    if board.at != EXIT:
        return "failed", board.tick, f"it ends at {board.at}, and the way out is at {EXIT}"
    if claim["category"] == "all-gems" and board.gems:
        return "failed", board.tick, f"{len(board.gems)} gems are left"
    if off > CLOSE_TICKS:
        return "failed", board.tick, f"it claims {claim['ticks']} ticks"
    if off:
        return "needs_review", board.tick, f"it claims {claim['ticks']} ticks, {off} off"
    if board.tick <= way:
        return "needs_review", board.tick, "there is not one wrong step in it"
    return "passed", board.tick, "as claimed"


def main() -> int:
    """Judge the save that is named on the command line."""
    try:
        verdict, ticks, why = judge(Path(sys.argv[1]).read_text(encoding="utf-8"))
    except Unplayable as wrong:
        print(json.dumps({"error": str(wrong)}))
        return 3
    print(json.dumps({"verdict": verdict, "ticks": ticks, "why": why}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
