"""What spark-submit runs: a request comes in through Dagster Pipes, its result goes back as a message.

`spark-submit … spark_jobs/main.py`; the extra `request` is a `Request` as JSON, the message is `{"result": a Result as JSON}`.
On a cluster whose driver inherits no environment, Pipes' own arguments are appended to the command.
"""

from dagster_pipes import PipesCliArgsParamsLoader, open_dagster_pipes
from pyspark.sql import SparkSession

from spark_jobs.request import Request
from spark_jobs.runner import run


def main() -> None:
    """Compute the request; an error is reported to Dagster and ends the application as failed."""
    arguments = PipesCliArgsParamsLoader()  # type: ignore[no-untyped-call]
    with open_dagster_pipes(params_loader=arguments if arguments.is_dagster_pipes_process() else None) as pipes:
        request = Request.from_json(pipes.get_extra("request"))
        spark = SparkSession.builder.getOrCreate()
        pipes.log.info(f"{request.job}: computing on Spark {spark.version}")
        result = run(spark, request)
        pipes.report_custom_message({"result": result.to_json()})
        spark.stop()


if __name__ == "__main__":
    main()
