"""What a store promises about workers."""

from datetime import timedelta

from .world import START, World, WorldSuite, after, end


class WorkersSuite(WorldSuite):
    """Rows of workers, their leases and flags."""

    def renew(self, world: World, worker: int, seconds: float) -> object:
        with world.writing() as tx:
            return world.store.renew_worker(tx, worker, after(seconds))

    def set_idle(self, world: World, worker: int, is_idle: bool) -> None:
        with world.writing() as tx:
            world.store.set_idle(tx, worker, is_idle)

    def has_idle_worker(self, world: World, *lanes: int) -> bool:
        with world.database.reading() as tx:
            return world.store.has_idle_worker(tx, lanes)

    def test_a_new_worker_is_alive_until_its_lease_ends(self, world: World) -> None:
        """A worker is listed as it announced itself, and its lease is judged by the given instant."""
        worker = world.worker(lease=timedelta(seconds=10), process="nonce")
        row = world.workers()[worker]
        assert (row.name, row.process, row.is_alive, row.is_idle, row.end, row.ended_at) == ("host:1", "nonce", True, False, None, None)
        assert (row.lease, row.lease_until, row.started_at, row.running) == (timedelta(seconds=10), after(10), START, 0)
        assert not world.workers(now=after(10))[worker].is_lease_over
        assert world.workers(now=after(10.001))[worker].is_lease_over

    def test_a_renewal_prolongs_the_lease_and_moves_the_beat(self, world: World) -> None:
        """A renewal answers with the database's time."""
        worker = world.worker()
        before = world.workers()[worker]
        assert self.renew(world, worker, 5) == after(5)
        row = world.workers()[worker]
        assert (row.lease_until, row.beat > before.beat) == (after(35), True)

    def test_a_renewal_never_shortens_the_lease(self, world: World) -> None:
        """A clock that went back does not take from a lease what it has."""
        worker = world.worker()
        self.renew(world, worker, 60)
        self.renew(world, worker, 5)
        assert world.workers()[worker].lease_until == after(90)

    def test_an_ended_worker_cannot_renew(self, world: World) -> None:
        """A worker that was ended learns it from its renewal, and its row does not change."""
        worker = world.worker()
        world.end_worker(worker, now=after(1))
        ended = world.workers()[worker]
        assert self.renew(world, worker, 5) is None
        assert world.workers()[worker] == ended
        assert self.renew(world, 12345, 5) is None

    def test_a_worker_is_ended_once(self, world: World) -> None:
        """The first end stands, with its instant and its word."""
        worker = world.worker()
        assert world.end_worker(worker, "dead", now=after(1))
        assert not world.end_worker(worker, "silent", now=after(2))
        row = world.workers()[worker]
        assert (row.is_alive, row.end, row.ended_at) == (False, "dead", after(1))

    def test_a_worker_that_moved_is_not_dead(self, world: World) -> None:
        """A beat that moved since the first look saves a worker."""
        worker = world.worker()
        beat = world.workers()[worker].beat
        self.renew(world, worker, 1)
        assert not world.end_worker(worker, beat=beat)
        assert world.workers()[worker].is_alive
        assert world.end_worker(worker, beat=world.workers()[worker].beat)

    def test_only_an_ended_lease_is_silence(self, world: World) -> None:
        """A worker is silent when its lease is over by the database's clock, and not before."""
        worker = world.worker(lease=timedelta(seconds=10))
        assert not world.end_worker(worker, "silent", is_silent=True, now=after(10))
        assert world.end_worker(worker, "silent", is_silent=True, now=after(10.001))

    def test_living_workers_can_be_listed_alone(self, world: World) -> None:
        """Ended workers are left out when asked."""
        living, ended = world.worker(), world.worker()
        world.end_worker(ended)
        assert set(world.workers(only_alive=True)) == {living}
        assert set(world.workers()) == {living, ended}

    def test_running_runs_are_counted(self, world: World) -> None:
        """A worker's row says how many runs it holds."""
        worker = world.worker()
        world.claimed(worker)
        world.commit(worker, end(world.claimed(worker)))
        assert world.workers()[worker].running == 1

    def test_idle_workers_are_found_by_lane(self, world: World) -> None:
        """A wake-up is due only where a living worker of the lane asked for it."""
        mine, other = world.lane(), world.lane(queue="bulk")
        worker = world.worker(mine)
        assert not self.has_idle_worker(world, mine, other)
        self.set_idle(world, worker, True)
        assert self.has_idle_worker(world, mine, other)
        assert world.workers()[worker].is_idle
        assert not self.has_idle_worker(world, other)
        assert not self.has_idle_worker(world)
        self.set_idle(world, worker, False)
        assert not self.has_idle_worker(world, mine)

    def test_an_ended_worker_is_not_idle(self, world: World) -> None:
        """A worker that was ended neither asks for wake-ups nor can begin to."""
        worker = world.worker()
        self.set_idle(world, worker, True)
        world.end_worker(worker)
        assert not self.has_idle_worker(world, world.lane())
        self.set_idle(world, worker, True)
        assert not self.has_idle_worker(world, world.lane())

    def test_old_workers_are_forgotten_unless_they_hold_something(self, world: World) -> None:
        """A worker that ended long ago is deleted once nothing points to it."""
        old, holding, young, living = (world.worker() for _ in range(4))
        world.claimed(holding)
        world.end_worker(old)
        world.end_worker(holding)
        world.end_worker(young, now=after(3600))
        with world.writing() as tx:
            assert world.store.delete_ended_workers(tx, timedelta(seconds=1800), after(3600)) == 1
        assert set(world.workers()) == {holding, young, living}

    def test_one_watcher_may_watch(self, world: World) -> None:
        """The first who asks becomes the watcher."""
        with world.writing() as tx:
            assert world.store.try_watch(tx)
