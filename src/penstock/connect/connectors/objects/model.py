"""Confluent's sinks to S3 and Google Cloud Storage: their settings that the object sink does not have."""

from __future__ import annotations

from penstock.connect.config import Model, Refused

__all__ = ["OBJECT_MODEL"]

_BUCKET = "Name the bucket in store.url, such as s3://bucket or gs://bucket."
_OPTIONS = "Give options of the store by store.options, such as region:eu-central-1."
_CREDENTIALS = "Credentials are those of the environment, such as AWS_ACCESS_KEY_ID or GOOGLE_APPLICATION_CREDENTIALS."
_PATH = "Write the folders into path.format: ${topic}, ${partition}, and %Y, %m, %d, %H of the record's time in UTC."
_FORMAT = "Set format to parquet, json or csv."
_COMPRESSION = "Set compression."
_NAMES = (
    "Names are topic+partition+first-last, with offsets of twenty digits: a restarted task finds its place by them."
)
_KEYS = "Only values are written: put keys and headers into them by the transformations of a connector."
_AVRO = "There is no Avro format: set format=parquet."
_PARTS = "an object is written by one request, or in parts as the store wants them."
_ENCRYPTION = "Set the encryption of the bucket, in the store."
_NULLS = "Set behavior.on.null.values to ignore or fail."

OBJECT_MODEL = Model(
    "Confluent's sinks to S3 and Google Cloud Storage",
    refused={
        "s3.bucket.name": _BUCKET,
        "gcs.bucket.name": _BUCKET,
        "s3.region": "Set store.options=region:NAME.",
        "s3.path.style.access.enabled": "Set store.options=virtual_hosted_style_request:false.",
        "aws.": _CREDENTIALS,
        "s3.credentials.provider.": _CREDENTIALS,
        "gcs.credentials.": _CREDENTIALS,
        "s3.proxy.": "Set the environment's variable HTTPS_PROXY for the worker.",
        "gcs.proxy.": "Set the environment's variable HTTPS_PROXY for the worker.",
        "s3.object.tagging": Refused("Tag objects by a rule of the bucket.", unless=("false",)),
        "s3.object.tagging.key.value.pairs": "Tag objects by a rule of the bucket.",
        "s3.object.behavior.on.tagging.error": "Objects have no tags.",
        "s3.acl.canned": "Set the access of the bucket, in the store.",
        "s3.ssea.name": _ENCRYPTION,
        "s3.sse.": _ENCRYPTION,
        "s3.wan.mode": Refused(_OPTIONS, unless=("false",)),
        "s3.compression.type": _COMPRESSION,
        "gcs.compression.type": _COMPRESSION,
        "s3.compression.level": _COMPRESSION,
        "parquet.codec": _COMPRESSION,
        "avro.codec": _AVRO,
        "enhanced.avro.schema.support": _AVRO,
        "connect.meta.data": _AVRO,
        "allow.optional.map.keys": _AVRO,
        "format.class": _FORMAT,
        "format.bytearray.": _FORMAT,
        "storage.class": "The scheme of store.url says which store it is.",
        "topics.dir": "Write it into store.url or path.format: the default of Confluent's sinks is topics/.",
        "directory.delim": Refused("Folders are separated by /.", unless=("/",)),
        "file.delim": Refused(_NAMES, unless=("+",)),
        "filename.offset.zero.pad.width": Refused(_NAMES, unless=("20",)),
        "partitioner.class": _PATH,
        "partitioner.max.open.files": _PATH,
        "partition.field.name": _PATH,
        "partition.duration.ms": _PATH,
        "locale": _PATH,
        "timezone": Refused(_PATH, unless=("utc",)),
        "timestamp.extractor": Refused(_PATH, unless=("record",)),
        "timestamp.field": _PATH,
        "rotate.file.on.partition.change": Refused("Another folder is another object.", unless=("true",)),
        "schema.compatibility": Refused("Another schema is another object.", unless=("none",)),
        "s3.schema.partition.affix.type": Refused(_PATH, unless=("none",)),
        "json.decimal.format": 'Decimals are text in JSON: 1.50 is "1.50".',
        "store.kafka.keys": Refused(_KEYS, unless=("false",)),
        "store.kafka.headers": Refused(_KEYS, unless=("false",)),
        "keys.format.class": _KEYS,
        "headers.format.class": _KEYS,
        "tombstone.encoded.partition": _NULLS,
        "report.null.values.to.dlq": Refused(_NULLS, unless=("false",)),
        "max.write.duration.ms": "A task writes what it has when put is called.",
        "hive.": Refused("Add the folders to Hive by its own command MSCK REPAIR TABLE.", unless=("false",)),
        "retry.backoff.ms": "What may succeed later is written again until it does, with the worker's waits.",
    },
    idle={
        "s3.part.size": _PARTS,
        "gcs.part.size": _PARTS,
        "s3.part.retries": "the client of the store repeats requests itself.",
        "gcs.part.retries": "the client of the store repeats requests itself.",
        "s3.retry.backoff.ms": "the client of the store repeats requests itself.",
        "s3.http.send.expect.continue": _PARTS,
        "s3.send.digest": _PARTS,
        "s3.elastic.buffer.": _PARTS,
        "enable.conditional.writes": "the names of objects say what is in them, and a task continues after the newest.",
        "max.files.scan.limit": "a task lists the objects of its partitions when it starts.",
        "shutdown.timeout.ms": "the worker's task.shutdown.graceful.timeout.ms counts.",
        "schemas.cache.config": "schemas are the converter's.",
        "confluent.": "no licence is needed.",
    },
)
