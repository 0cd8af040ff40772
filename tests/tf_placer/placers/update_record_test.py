import dataclasses
import json
import math

from absl.testing import absltest

from tf_placer.placers.update_record import UpdateRecord

_RECORD = UpdateRecord(3, 40, "ppo", -0.5, -0.75, 0.6, 0.01, 0.25, 1.5, 0.1, 0.2, 1, 10)


class UpdateRecordTest(absltest.TestCase):
    def test_json_round_trip(self):
        for changes in (
            {},
            {"loss": None, "gradient_norm": None, "best_step_secs": None, "mean_step_secs": None},
            {"loss": math.inf, "gradient_norm": -math.inf},
        ):
            record = dataclasses.replace(_RECORD, **changes)
            text = json.dumps(record.to_json(), allow_nan=False)
            self.assertEqual(UpdateRecord.from_json(json.loads(text)), record)

    def test_json_has_every_field_under_its_name(self):
        value = _RECORD.to_json()
        self.assertEqual(
            list(value),
            [
                *("update", "samples", "kind", "mean_reward", "baseline", "entropy", "divergence"),
                *("loss", "gradient_norm", "best_step_secs", "mean_step_secs", "failures"),
                "batch_size",
            ],
        )
        self.assertEqual(value["gradient_norm"], 1.5)

    def test_json_round_trip_of_nan(self):
        record = dataclasses.replace(_RECORD, loss=math.nan)
        value = json.loads(json.dumps(record.to_json(), allow_nan=False))
        self.assertEqual(value["loss"], "nan")
        self.assertTrue(math.isnan(UpdateRecord.from_json(value).loss))

    def test_fields_of_a_later_version_are_ignored(self):
        self.assertEqual(UpdateRecord.from_json(_RECORD.to_json() | {"more": 1}), _RECORD)

    def test_refuses_invalid_records(self):
        value = _RECORD.to_json()
        for wrong in (
            {k: v for k, v in value.items() if k != "entropy"},
            value | {"entropy": "high"},
            value | {"update": None},
        ):
            with self.assertRaises(ValueError):
                UpdateRecord.from_json(wrong)


if __name__ == "__main__":
    absltest.main()
