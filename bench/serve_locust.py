"""What one reader of a server does, for locust: stored pages, one after the other, with a second or two between them."""

import os
import random

from locust import FastHttpUser, between, task

IDS = os.environ.get("KINPRINT_RESULTS", "").split(",")


class Reader(FastHttpUser):
    """Somebody who reads results."""

    wait_time = between(1.0, 2.0)

    @task(3)
    def result(self) -> None:
        """Open a stored report."""
        self.client.get(f"/results/{random.choice(IDS)}", name="/results/ID")

    @task(2)
    def home(self) -> None:
        """Open the first page."""
        self.client.get("/")

    @task(1)
    def job(self) -> None:
        """Ask for a job by the API."""
        self.client.get(f"/api/jobs/{random.choice(IDS)}", name="/api/jobs/ID")
